"""The Workloads page: forms built from the catalog, live progress and results."""
