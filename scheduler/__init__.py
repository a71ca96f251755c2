"""All that runs in the daemon: devices, telemetry, store, queue. Never imports torch or Qt."""
