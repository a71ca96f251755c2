"""Run the main workflow without a display, and picture every page."""
