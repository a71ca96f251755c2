"""The Models page: language models on disk and on the hub."""
