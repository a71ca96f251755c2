"""Store jobs in one SQLite file and the history of devices in another. All SQL is here."""

from gpudeck.scheduler.store.store import Store

__all__ = ["Store"]
