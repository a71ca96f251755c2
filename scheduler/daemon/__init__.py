"""The daemon: its loop and the wiring."""
