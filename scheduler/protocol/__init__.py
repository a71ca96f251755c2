"""What both sides of the socket share: jobs, snapshots, settings, units and errors."""
