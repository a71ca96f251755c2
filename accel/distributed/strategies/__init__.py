"""List the strategies by which attention is divided among ranks."""
