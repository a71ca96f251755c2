"""The tests that others wrote for their own code, run with ours in its place."""
