"""The window itself: rail, status line, tray icon and start-up."""
