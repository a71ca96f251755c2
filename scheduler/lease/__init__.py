"""The GPU that is leased to the assistant, and its eviction."""
