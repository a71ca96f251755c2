"""The clean-up page: what can be deleted, and undo."""
