"""The job queue: policy, placement and transitions are pure; every change is committed first."""
