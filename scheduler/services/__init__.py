"""Services of the daemon besides the queue: alerts, polling, snapshots, reports and notices."""
