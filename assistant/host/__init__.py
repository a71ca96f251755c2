"""The assistant process: one request at a time, its lease and its checkpoint."""
