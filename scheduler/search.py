"""Keep `from scheduler.search import Search` working for programs written against 0.1."""

from scheduler.protocol.search import Search

__all__ = ["Search"]
