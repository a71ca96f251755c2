"""What both sides of the socket know: jobs, requests and replies, snapshots, settings, units and errors."""
