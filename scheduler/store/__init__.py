"""The store: jobs in one SQLite file, the history of the devices in another. The only room that speaks SQL."""

from scheduler.store.store import Store

__all__ = ["Store"]
