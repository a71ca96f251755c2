"""The requests of the daemon and their handlers."""
