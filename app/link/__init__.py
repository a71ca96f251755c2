"""Threads that subscribe to the daemon and send requests for the window."""
