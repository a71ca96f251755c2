"""The main job without a display: pictures of every page and the report as PDF."""
