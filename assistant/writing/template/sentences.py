"""Build small pieces of Markdown: sentences, enumerations and tables."""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.language.numbers import capitalized


def given(form: str, value: str | None) -> str:
    """Return `form` with the value in its braces, or nothing if there is no value.

    Braces in the value stay as they are.
    """
    return form.format(value) if value else ""


def sentence(*parts: str) -> str:
    """Join the parts into a sentence with an upper-case beginning and one full stop."""
    text = "".join(parts).strip().rstrip(".")
    return f"{capitalized(text)}." if text else ""


def counted(count: int, noun: str) -> str:
    """Return `1 job` or `2 jobs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def paragraph(*sentences: str) -> str:
    """Join the sentences that are not empty."""
    return " ".join(filter(None, sentences))


def listed(things: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join(filter(None, (", ".join(things[:-1]), *things[-1:])))


def are(things: Sequence[str]) -> str:
    """Return `is` for one thing, otherwise `are`."""
    return "is" if len(things) == 1 else "are"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; nothing if there are no rows."""
    if not rows:
        return ""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
