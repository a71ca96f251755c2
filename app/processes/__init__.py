"""The Processes page: which processes use the GPUs."""
