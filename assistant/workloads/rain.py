"""Time the configured model as it writes texts about random machines, with the search of RAIN.

    python -P -m gpudeck.assistant.workloads.rain

One text is timed at a time, refused ones included: from facts to words that hold, or to the
template.
"""

from __future__ import annotations

import re
import sys
import time
from random import Random
from typing import TYPE_CHECKING

from gpudeck.accel.result import Check
from gpudeck.accel.workloads.harness import Failure, Outcome, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol import settings

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.assistant.engine.engine import Engine
    from gpudeck.assistant.facts import Fact

_INVENTED = phrase("share of texts with a number that no fact has")
_NUMBER = re.compile(r"\d[\d.:]*\d|\d")


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Write as many briefs as requested. Raises Failure if there is no model to load."""
    from gpudeck.accel.runtime.timing import timing_of
    from gpudeck.assistant.engine.engine import Engine
    from gpudeck.scheduler.protocol.errors import UserError

    folder = settings.load().model
    if not folder:
        raise Failure(
            "no model is chosen: templates write the texts (setting model_folder). To choose one: "
            "gpudeck models"
        )
    progress.stage("loading the model")
    try:
        engine = Engine(folder, device.kind)
    except UserError as e:
        raise Failure(str(e)) from e
    random, count = Random(values.integer("seed")), values.integer("texts")
    progress.plan(count)
    progress.stage("writing")
    tally = _Tally(engine, greedy=values.text("method") == "greedy")
    began = time.time()
    try:
        for number in range(count):
            tally.write(random)
            progress.advance(number + 1, tally.flops)
    finally:
        engine.retire()
    return Outcome(
        values.text("method"),
        tally.story(),
        (Check(_INVENTED, tally.invented / count, 0.0),),
        timing_of([1e3 * seconds for seconds in tally.took]),
        tally.flops / count,
        sustained_tflops=tally.flops / sum(tally.took) / 1e12,
        sustained_from=began,
        sustained_to=time.time(),
    )


class _Tally:
    """Count texts and their outcomes."""

    def __init__(self, engine: Engine, *, greedy: bool) -> None:
        from gpudeck.assistant.writing.rain import SearchLimits

        self._engine = engine
        self._limits = SearchLimits(steps=1, children=1) if greedy else SearchLimits()
        self.took: list[float] = []
        """The seconds of each text."""
        self.held = self.tokens = self.invented = 0

    @property
    def flops(self) -> float:
        """Return two operations for each parameter and written token; prompts are not included."""
        return 2.0 * self._engine.network.parameters * self.tokens

    def write(self, random: Random) -> None:
        """Write one text about a random machine, and time it."""
        from gpudeck.assistant.engine.author import EngineAuthor
        from gpudeck.assistant.workloads.random_machines import random_facts
        from gpudeck.assistant.writing.writer import write

        facts, author = random_facts(random), EngineAuthor(self._engine, lambda: False)
        began = time.perf_counter()
        text, writer, _ = write(facts, author, limits=self._limits)
        self.took.append(time.perf_counter() - began)
        self.tokens += author.tokens
        if writer != "template":
            self.held += 1
            self.invented += bool(_numbers(text) - _known_numbers(facts))

    def story(self) -> Text:
        """Return the counts and rates in a line."""
        count, seconds = len(self.took), sum(self.took)
        return phrase(
            "the configured model {name}: {held} of {n} texts held, the template wrote the rest;"
            " {tokens} tokens a text, {rate} a second",
            name=self._engine.name,
            held=self.held,
            n=count,
            tokens=round(self.tokens / count),
            rate=round(self.tokens / seconds),
        )


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text))


def _known_numbers(facts: tuple[Fact, ...]) -> set[str]:
    return set().union(*(_numbers(f"{fact.text} {fact.said} {fact.subject}") for fact in facts))


if __name__ == "__main__":
    sys.exit(serve("rain", work))
