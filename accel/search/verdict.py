"""Describe the verdict on a candidate, with everything that is needed to repeat it.

The module needs no torch.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpudeck.language.text import Number, Text, Value, phrase

Kind = Literal[
    "aliases",
    "changes-inputs",
    "crashed",
    "hung",
    "inaccurate",
    "inaccurate-when-timed",
    "inspects",
    "library",
    "not-finite",
    "only-in-batches",
    "patches",
    "processes",
    "reuses-output",
    "threads",
    "too-fast",
    "unloadable",
    "wrong-result",
]


TIE = 1.02
"""A candidate must lead by more than this factor: less may come from where its code lies."""


class Source(msgspec.Struct, frozen=True):
    """Name a function: `entry` of a Python file or of a module.

    With options, `entry` is called with them as keywords, and returns the function.
    """

    place: str
    """The path of a file that ends in .py, or the name of a module."""
    entry: str = "candidate"
    options: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """Return the source code of a file; nothing for a module."""
        return Path(self.place).read_text() if self.place.endswith(".py") else ""


class Refusal(msgspec.Struct, frozen=True):
    """Tell one reason why a candidate is not accepted."""

    kind: Kind
    where: str = ""
    """The trial, window or operation, by name."""
    found: float | None = None
    allowed: float | None = None

    @property
    def text(self) -> Text:
        """Return the reason for people to read."""
        values: dict[str, Value] = {"where": self.where}
        if self.found is not None and self.allowed is not None:
            values |= {"found": Number(self.found, ".3g"), "allowed": Number(self.allowed, ".3g")}
        return Text(_TEXTS[self.kind].key, tuple(values.items()))


_TEXTS: dict[Kind, Text] = {
    "aliases": phrase("its result shares memory with an input ({where})"),
    "changes-inputs": phrase("it changes its inputs ({where})"),
    "crashed": phrase("its process ended or raised an exception: {where}"),
    "hung": phrase("it did not answer in time ({where})"),
    "inaccurate": phrase("its error is {found}, above {allowed} ({where})"),
    "inaccurate-when-timed": phrase(
        "a call that was timed has the error {found}, above {allowed} ({where})"
    ),
    "inspects": phrase("it inspects the process that measures it: {where}"),
    "library": phrase("it has a library compute the result: {where}"),
    "not-finite": phrase("its result has values that are not finite ({where})"),
    "only-in-batches": phrase(
        "it saves {found} µs in a call of its own, and {allowed} µs in a call among others"
    ),
    "patches": phrase("it replaces functions that do not belong to it: {where}"),
    "processes": phrase("it starts processes while it is called: {where}"),
    "reuses-output": phrase("a later call overwrites the result of an earlier one ({where})"),
    "threads": phrase("it leaves or starts threads: {where}"),
    "too-fast": phrase("it takes {found} µs, and the hardware needs at least {allowed} µs"),
    "unloadable": phrase("it cannot be loaded: {where}"),
    "wrong-result": phrase("its result is not a plain tensor of the right type and shape: {where}"),
}


class Trial(msgspec.Struct, frozen=True):
    """Describe one comparison with the reference in float64."""

    sizes: dict[str, int]
    draw: str
    """The distribution of the inputs."""
    error: float
    """See `measures.error`."""
    honest: float
    """The error of the reference in the precision of the inputs."""
    bound: float
    inputs: str
    """The SHA-256 of the inputs, in hexadecimal digits."""


class Span(msgspec.Struct, frozen=True):
    """An estimate with its bounds: of a median, with the confidence of `measures.DOUBT`."""

    estimate: float
    low: float
    high: float


class Denominator(msgspec.Struct, frozen=True):
    """Describe an alternative that the candidate could have been compared with."""

    name: str
    microseconds: float = 0.0
    """The median of a call, with the copies of inputs and outputs; 0 if it did not run."""
    absent: str = ""
    """Why it did not run, in the words of the program that failed."""


class Round(msgspec.Struct, frozen=True):
    """Hold the windows of one round, in microseconds a call."""

    calls: int
    candidate: float
    baseline: float
    twin: float
    """The baseline once more, in another process."""
    copies: float
    """The window without a computation: only the copies of inputs and outputs."""


class Race(msgspec.Struct, frozen=True):
    """Describe how the candidate was timed beside the fastest alternative."""

    baseline: str
    denominators: tuple[Denominator, ...]
    rounds: tuple[Round, ...]
    speedup: Span
    """The times of whole windows: baseline / candidate. The copies are in both."""
    twin: Span
    """The same of the baseline and its twin: what noise alone does."""
    net: float
    """Baseline / candidate, without the copies."""
    microseconds: float
    """The median of a call of the candidate without the copies."""
    at_most: float
    """What this median is at most, as the windows vary: in microseconds."""
    verified: int
    """How many timed calls were compared with the reference."""

    @property
    def is_won(self) -> bool:
        """Return whether the candidate leads beyond doubt: by more than the twin and TIE."""
        return self.speedup.low > max(self.twin.high, 1 / self.twin.low, TIE)


class Roofline(msgspec.Struct, frozen=True):
    """Tell what the hardware needs at least for one call."""

    flops: float
    moved: float
    """Bytes: every input and every output once."""
    least_us: float
    source: str
    """Where the rates come from."""
    mhz: float | None = None
    """The true clock while the candidate was timed, if it was measured."""

    def share(self, microseconds: float) -> float:
        """Return the part of the attainable speed that a time means."""
        return self.least_us / microseconds if microseconds > 0 else 0.0


class Verdict(msgspec.Struct, frozen=True):
    """Tell whether a candidate is right, and how fast it is."""

    task: str
    sizes: dict[str, int]
    dtype: str
    device: str
    versions: dict[str, str]
    candidate: Source
    source: str
    """The source code that was judged; empty for a candidate of ours."""
    digest: str
    """The SHA-256 of the source code and the options."""
    seed: int
    """From which the hidden sizes, distributions and values were drawn."""
    refusals: tuple[Refusal, ...]
    trials: tuple[Trial, ...]
    launched: tuple[str, ...]
    """The operations of torch and the kernels of a GPU that one call launched."""
    measures: tuple[str, ...]
    """The measures that were in force: some need a GPU."""
    race: Race | None
    """None if the candidate was refused before it was timed."""
    roofline: Roofline | None
    at: float
    """Seconds since the epoch."""

    @property
    def accepted(self) -> bool:
        """Return whether nothing was found wrong."""
        return not self.refusals

    @property
    def is_faster(self) -> bool:
        """Return whether it is accepted, and faster than the fastest alternative beyond doubt."""
        return self.accepted and self.race is not None and self.race.is_won

    @property
    def text(self) -> Text:
        """Return the verdict in one sentence."""
        if self.refusals:
            return phrase("refused: {why}", why=self.refusals[0].text)
        if self.race is None:
            return phrase("its answers are correct; it was not timed")
        values: dict[str, Value] = {
            "net": Number(self.race.net, ".3f"),
            "low": Number(self.race.speedup.low, ".3f"),
            "baseline": self.race.baseline,
        }
        if self.is_faster:
            return phrase(
                "correct, and {net} times as fast as {baseline}; with the copies of inputs and"
                " outputs, at least {low} times",
                **values,
            )
        return phrase("correct, but not faster than {baseline} beyond doubt", **values)


def digest_of(candidate: Source, source: str) -> str:
    """Return the SHA-256 that identifies what was judged."""
    parts = msgspec.json.encode((candidate.entry, candidate.options, source or candidate.place))
    return hashlib.sha256(parts).hexdigest()


def encode(verdict: Verdict) -> bytes:
    """Return the record as JSON, which has no infinity: the largest number stands for it."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(verdict)))


def _finite(value: Any) -> Any:
    """Return builtins in which no number is infinite."""
    match value:
        case float():
            return min(max(value, -sys.float_info.max), sys.float_info.max)
        case dict():
            return {name: _finite(held) for name, held in value.items()}
        case list() | tuple():
            return [_finite(held) for held in value]
    return value


def decode(data: bytes) -> Verdict:
    """Return a verdict from its record.

    Raises:
        msgspec.ValidationError: if the data is none.
    """
    return msgspec.json.decode(data, type=Verdict)
