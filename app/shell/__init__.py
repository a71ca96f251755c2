"""Open the main window with its rail, status line and tray icon."""
