"""Format numbers, durations and times for people."""
