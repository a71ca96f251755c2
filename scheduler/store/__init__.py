"""The store: jobs and recent telemetry in one SQLite file. The only room that speaks SQL."""

from scheduler.store.store import Store

__all__ = ["Store"]
