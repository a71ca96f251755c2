"""The assistant process: one request at a time, its lease and its journal."""
