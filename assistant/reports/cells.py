"""What facts say, for the cells of tables: where they disagree both, where there is no value "no data"."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.facts import Fact

NO_DATA = "no data"


class Cells:
    """Facts by name. Every lookup may find nothing: no fact is sure to be there."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._named: dict[str, list[Fact]] = {}
        for fact in facts:
            self._named.setdefault(fact.name, []).append(fact)

    def said(self, name: str) -> str:
        """The value in words; of several that differ each with its source; `no data` where there is none."""
        found = {fact.said: fact for fact in self._named.get(name, ()) if fact.value is not None}
        if len(found) > 1:
            return "sources disagree: " + ", ".join(
                f"{said} ({fact.source})" for said, fact in found.items()
            )
        return next(iter(found), NO_DATA)

    def given(self, name: str, otherwise: str = "") -> str:
        """As `said`, for what not every job has: `otherwise` where there is none."""
        return found if (found := self.said(name)) != NO_DATA else otherwise

    def missing(self, name: str) -> str | None:
        """Why there is no value; None where there is one."""
        facts = self._named.get(name, [])
        if any(fact.value is not None for fact in facts):
            return None
        return facts[-1].said.removeprefix("N/A (").removesuffix(")") if facts else "nobody told"

    def number(self, name: str) -> float | None:
        """The value itself, to sort by; never to be told."""
        value = next(
            (
                fact.value
                for fact in self._named.get(name, ())
                if isinstance(fact.value, int | float)
            ),
            None,
        )
        return value

    def why_not(self, wanted: Sequence[tuple[str, str]]) -> str:
        """A sentence for each reason why some of `wanted` (what it is, name of its fact) have no value."""
        reasons: dict[str, list[str]] = {}
        for what, name in wanted:
            if (why := self.missing(name)) is not None:
                reasons.setdefault(why, []).append(what)
        return " ".join(
            f"No data for {', '.join(dict.fromkeys(whats))}: {why}."
            for why, whats in reasons.items()
        )
