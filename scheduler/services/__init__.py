"""Services of the daemon beside the queue: alerts, polling, snapshots, reports and notices."""
