"""The daemon: its event loop and the wiring of its parts."""
