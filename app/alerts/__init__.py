"""The Alerts page and desktop notifications."""
