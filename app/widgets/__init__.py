"""Widgets and the theme that several pages share."""
