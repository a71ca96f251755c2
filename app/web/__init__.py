"""The read-only page for browsers, from the Qt-free models of the window."""
