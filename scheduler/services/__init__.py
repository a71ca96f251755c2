"""What the daemon does beside the queue: alerts, polling, reports and notices."""
