"""Read what jobs print of themselves: their loss, and how many tokens they process."""

from __future__ import annotations

import math
import re

import msgspec

from gpudeck.accel import result as results
from gpudeck.assistant.query.rows import Value
from gpudeck.assistant.retrieval.job_logs import ONE_LOG
from gpudeck.assistant.retrieval.job_logs import read as read_log
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.printed_values import last_values, values_of

_LOSSES = ("held-out loss", "held_out", "eval_loss", "val_loss", "valid_loss", "test_loss", "loss")
"""The names of losses, those of data that was not trained on first."""
_SPEEDS = ("tokens_per_second", "train_tokens_per_second", "tokens_per_sec", "tokens/s",
           "tokens/sec", "tok/s", "tok/sec", "tps")  # fmt: skip
_NUMBER = r"(?:\d{1,15}(?:\.\d{0,15})?(?:e[-+]?\d{1,3})?|nan|inf)(?!\w)"
_PRINTED_LOSS = re.compile(rf"(?i)(?<![\w-])loss\s{{0,4}}(?:[:=]|is|at)?\s{{0,4}}([-+]?{_NUMBER})")
"""A loss in a line of output that says more than values: `step 350 loss 3.0965`."""
_PRINTED_SPEED = re.compile(
    r"(?i)(?<![\w.,])(\d{1,9}(?:,\d{3}){0,3}(?:\.\d{1,9})?)\s?tok(?:en)?s?(?:/| per )"
    r"s(?:ec|econd)?\b"
)
"""A speed in such a line: `12,400 tok/s`."""
_LAST_LINES = 200
"""Lines of the end of a log in which a value is looked for."""

Pair = tuple[Value, Message]


def loss(job: Job) -> Pair:
    """Return the last held-out loss of a job, or its loss if it has no other, as its result or its
    output has it."""
    found = _last(job, _LOSSES, _PRINTED_LOSS)
    if found is None:
        return None, phrase("no loss was recorded as a value")
    if not math.isfinite(found):
        before = [value for value in losses(job) if math.isfinite(value)]
        if before:
            return None, phrase("the last loss that it printed is no finite number, and the last "
                                "one before is {loss}", loss=f"{before[-1]:.4g}")  # fmt: skip
        return None, phrase("the last loss that it printed is no finite number")
    return found, ""


def losses(job: Job) -> list[float]:
    """Return the losses that the last lines of a job's output have, the newest last."""
    found: list[float] = []
    for line in read_log(job.id, ONE_LOG).lines[-_LAST_LINES:]:
        values = values_of(line.encode())
        named = next((values[name] for name in _LOSSES if name in values), None)
        said = _PRINTED_LOSS.findall(line[-400:]) if named is None else []
        found += [named] if named is not None else [float(each) for each in said[-1:]]
    return found


def tokens_per_joule(job: Job, watts: float | None) -> Pair:
    """Return the tokens that a job processes for a joule, which are those a second for a watt.

    Args:
        job: The job, which says how many tokens it processes.
        watts: The power of its GPUs: now if it runs, and their mean if it has ended.
    """
    speed = _last(job, _SPEEDS, _PRINTED_SPEED)
    if speed is None:
        return None, phrase("it does not print how many tokens a second it processes")
    if not watts or not math.isfinite(speed):
        return None, phrase("the power of its GPUs is not known")
    return speed / watts, ""


def _last(job: Job, names: tuple[str, ...], printed: re.Pattern[str]) -> float | None:
    """Return the last value of the first of these names in a job's result or its output."""
    lines = read_log(job.id, ONE_LOG).lines if job.result is None else []
    found = (
        results.numbers_in(job.result) | _by_unit(job.result)
        if job.result is not None
        else last_values(line.encode() for line in lines)
    )
    named = next((found[name] for name in names if name in found), None)
    if named is not None:
        return named
    said = printed.findall("\n".join(line[-400:] for line in lines[-_LAST_LINES:]))
    return float(said[-1].replace(",", "")) if said else None


def _by_unit(result: bytes) -> dict[str, float]:
    """Return the figures of a Result by their units, which say more than our names for them."""
    try:
        return {figure.unit: figure.value for figure in results.read(result).figures}
    except msgspec.MsgspecError:  # a result of another program
        return {}
