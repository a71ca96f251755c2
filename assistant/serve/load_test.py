"""Measure a served model under rising load: throughput against latency. Free of torch and Qt.

Definitions: TTFT is the time from sending a request to its first token; TPOT the time of each
token after that, of one request on average; throughput the tokens of all answers a second.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from html import escape

import msgspec

from gpudeck.accel.serving.memory import CacheError, CacheFormat
from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.inference import engine_protocol as m
from gpudeck.assistant.reports.style import LIGHT
from gpudeck.assistant.reports.svg import axis_end
from gpudeck.assistant.serve.engine_process import EngineProcess
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

_WORDS = ("the", "queue", "of", "jobs", "waits", "while", "a", "model", "reads", "its", "memory")
_SHARES = (50, 95, 99)


class Load(msgspec.Struct, frozen=True):
    """Say what is sent."""

    streams: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Requests that are answered at once, in one round after another."""
    words: int = 128
    """Of each prompt; no two prompts begin alike."""
    tokens: int = 64
    """Of each answer."""
    rounds: int = 2
    """Requests of each stream, one after another."""


class Measured(msgspec.Struct, frozen=True):
    """Hold what was measured with a number of streams; times are in milliseconds."""

    streams: int
    requests: int
    throughput: float
    """Tokens of answers a second."""
    ttft: tuple[float, float, float]
    """P50, P95 and P99."""
    tpot: tuple[float, float, float]


class LoadResult(msgspec.Struct, frozen=True):
    """Hold the measurements of a model."""

    model: str
    device: str
    weights: str
    load: Load
    loaded_s: float
    measured: tuple[Measured, ...]
    cache: CacheFormat = "auto"
    cache_error: CacheError | None = None
    """None: the cache is exact."""


async def measure(
    options: m.Options, name: str, load: Load, progress: Callable[[m.Waiting], None]
) -> LoadResult:
    """Load a model in a process of its own, and measure it. Raises UserError."""
    process = EngineProcess(options)
    try:
        await process.ensure()
        while process.started is None:
            progress(process.waiting)
            await asyncio.sleep(0.1)
            await process.ensure()
        started = process.started
        await _round(process, Load((1,), load.words, 4, 1), 1, 0)  # compiles what is compiled
        found = []
        for streams in load.streams:
            progress(m.Waiting(phrase("{n} streams", n=streams)))
            found.append(await _round(process, load, streams, streams))
        return LoadResult(
            name, started.device, started.weights, load, started.seconds, tuple(found),
            started.cache, started.cache_error,
        )  # fmt: skip
    finally:
        await process.stop()


async def _round(process: EngineProcess, load: Load, streams: int, seed: int) -> Measured:
    """Measure with a number of streams."""
    draw = random.Random(seed)  # noqa: S311  no secret depends on it
    prompts = [
        [" ".join(draw.choices(_WORDS, k=load.words)) for _ in range(load.rounds)]
        for _ in range(streams)
    ]

    async def stream(texts: list[str]) -> list[tuple[float, float]]:
        return [await _ask(process, text, load.tokens) for text in texts]

    began = time.perf_counter()
    answers = await asyncio.gather(*map(stream, prompts))
    took = time.perf_counter() - began
    first = [ttft for each in answers for ttft, _ in each]
    later = [tpot for each in answers for _, tpot in each]
    count = streams * load.rounds
    return Measured(streams, count, count * load.tokens / took, _shares(first), _shares(later))


async def _ask(process: EngineProcess, text: str, tokens: int) -> tuple[float, float]:
    """Return TTFT and TPOT of one request, in milliseconds. Raises UserError."""
    number, replies = process.number()
    sampling = Sampling(temperature=0.0, logprobs=0)  # so that every token is told
    began = time.perf_counter()
    wanted = Wanted(sampling, tokens, prompt=text, ignore_end=True)
    process.send(m.Submit(number, wanted))
    first = last = 0.0
    seen = 0
    try:
        while not isinstance(event := await replies.get(), m.Done):
            if isinstance(event, m.Failed):
                raise UserError(event.message)
            last = time.perf_counter()
            first = first or last
            seen += len(event.tokens) if isinstance(event, m.Text) else 0
    finally:
        process.forget(number)
    if event.message or seen < 1:
        raise UserError(event.message or "the answer has no tokens")
    return (first - began) * 1e3, (last - first) * 1e3 / max(seen - 1, 1)


def _shares(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the 50th, 95th and 99th percentile, each a value that was measured."""
    ordered = sorted(values)
    p50, p95, p99 = (
        ordered[min(len(ordered) - 1, math.ceil(share / 100 * len(ordered)) - 1)]
        for share in _SHARES
    )
    return p50, p95, p99


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 720, 320, 64, 28, 46, 34


def chart(result: LoadResult) -> str:
    """Return an SVG of throughput against the time of a token, P50 and P99."""
    right = axis_end(max(each.throughput for each in result.measured))
    top = axis_end(max(each.tpot[2] for each in result.measured))

    def place(throughput: float, ms: float) -> tuple[float, float]:
        x = _LEFT + throughput / right * (_WIDTH - _LEFT - _RIGHT)
        return round(x, 1), round(_HEIGHT - _BOTTOM - ms / top * (_HEIGHT - _BOTTOM - _TOP), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' font-family="sans-serif" font-size="12" fill="{LIGHT.text}">'
        f'<rect width="100%" height="100%" fill="{LIGHT.surface}"/>'
        f'<text x="{_LEFT}" y="20">{escape(result.model)} on {result.device}, '
        f"{result.weights}: milliseconds a token (TPOT) against throughput</text>"
    ]
    for i in range(5):
        x, y = place(right * i / 4, top * i / 4)
        low, left = _HEIGHT - _BOTTOM, _LEFT
        parts.append(
            f'<path d="M{left} {y}H{_WIDTH - _RIGHT}M{x} {_TOP}V{low}" stroke="{LIGHT.grid}"/>'
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{top * i / 4:.3g}</text>'
            f'<text x="{x}" y="{low + 16}" text-anchor="middle">{right * i / 4:.4g}</text>'
        )
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">tokens a second, '
        "all streams; each point is a number of streams</text>"
    )
    for at, title, colour in ((0, "P50", LIGHT.series[0]), (2, "P99", LIGHT.series[1])):
        points = [place(each.throughput, each.tpot[at]) for each in result.measured]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), each in zip(points, result.measured, strict=True):
            parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>')
            if at == 0:
                parts.append(
                    f'<text x="{x}" y="{y + 18}" text-anchor="middle">{each.streams}</text>'
                )
        parts.append(
            f'<text x="{_WIDTH - 60}" y="{20 + 16 * (at > 0)}" fill="{colour}">{title}</text>'
        )
    return "".join(parts) + "</svg>\n"
