"""Tools that a person refused for good, in the setting `assistant_never`.

What is allowed for a session is kept by the client that asked.
"""

from __future__ import annotations

from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.settings import listed


def check_permitted(daemon: Client, tool: str) -> None:
    """Raise UserError if a person refused the tool, such as `operate cancel`, for good."""
    if tool in _refused(daemon):
        raise UserError(
            phrase(
                "you told me never to do this ({tool}). {value}", tool=tool, value=forget_hint(tool)
            )
        )


def refuse(daemon: Client, *tools: str) -> None:
    """Never propose these tools again."""
    daemon.configure(assistant_never=", ".join(sorted(_refused(daemon) | set(tools))))


def forget(daemon: Client, *tools: str) -> tuple[str, ...]:
    """Allow these tools to be proposed again, and return those that stay refused.

    Raises NotFound if one of them is not refused.
    """
    refused = _refused(daemon)
    if unknown := sorted(set(tools) - refused):
        raise NotFound(
            phrase(
                "{value} is not among what you told me never to do. See: gpudeck permissions",
                value=repr(unknown[0]),
            )
        )
    remaining = tuple(sorted(refused - set(tools)))
    if tools:
        daemon.configure(assistant_never=", ".join(remaining))
    return remaining


def forget_hint(tool: str) -> str:
    """Return the sentence that says how to allow a refused tool again."""
    return f"To allow it again: gpudeck permissions --forget '{tool}'"


def _refused(daemon: Client) -> frozenset[str]:
    return listed(daemon.snapshot().settings.assistant_never)
