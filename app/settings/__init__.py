"""The Settings page and the diagnostics for bug reports."""
