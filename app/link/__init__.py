"""Connect the window to the daemon: snapshots come in, requests go out, in threads."""
