"""Keep `from gpudeck.scheduler.search import Search` working for programs written against 0.1."""

from gpudeck.scheduler.protocol.search import Search

__all__ = ["Search"]
