"""The ways whose length is limited."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.walks.attention import first_attention_on_hopper
from tests.walks.noting import Way
from tests.walks.question import question_to_answer
from tests.walks.reading import reading_to_pixel
from tests.walks.submission import submission_to_first_instruction


class Walk(NamedTuple):
    """A way whose length is limited."""

    title: str
    most: int
    """Modules; one that runs in two processes counts once."""
    run: Callable[[], Mapping[str, Way]]
    """Returns the sections of the way by process, in their order."""
    revisited: frozenset[str] = frozenset()
    """The modules that a section may enter again after it has left them."""
    sometimes: frozenset[str] = frozenset()
    """The modules that only some values need; the documents name them and count them."""

    def render(self, sections: Mapping[str, Way]) -> str:
        """Return the modules as a paragraph of the documents."""
        texts = []
        for process, way in sections.items():
            named = ", ".join(f"`{module}`" for module in way.modules)
            texts.append(f"in the {process} {named}" if process else named)
        count = f"{len(modules_of(sections))} modules, at most {self.most}"
        text = f"{self.title} ({count}): {'; '.join(texts)}."
        return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def modules_of(sections: Mapping[str, Way]) -> set[str]:
    """Return the modules of all sections."""
    return {module for way in sections.values() for module in way.modules}


WALKS = (
    Walk(
        "**A program's first attention call to its launch on Hopper**",
        18,
        first_attention_on_hopper,
    ),
    Walk(
        "**A client's call of `submit` to the first instruction of the job**",
        64,
        submission_to_first_instruction,
        frozenset(
            f"scheduler.{module}"
            for module in (
                *("daemon.daemon", "protocol.turns", "protocol.wire", "queue.planner"),
                *("queue.policy", "verbs.submit"),
            )
        ),
    ),
    Walk(
        "**A reading to the pixels of a tile**",
        27,
        reading_to_pixel,
        sometimes=frozenset({"language.numbers"}),
    ),
    Walk("**A question to its answer**", 47, question_to_answer),
)
