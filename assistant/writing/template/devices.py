"""Describe devices: the state of each, a table of metrics, and why some have no value."""

from __future__ import annotations

from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.writing.template.sentences import (
    are,
    given,
    listed,
    paragraph,
    sentence,
    table,
)
from gpudeck.scheduler.protocol.fields import FIELDS

METRICS = {name: FIELDS[name].label for name in ("util", "mem_used", "tflops", "temp", "power")}
WHEN = {"now": "", "mean": ".mean", "highest": ".max"}
_COVERED = 0.9
"""The share of the time covered by readings below which a sentence says so."""


def called(index: FactIndex, device: str) -> str:
    """Return the name of a device: GPU 0."""
    return index.text(f"{device}.label") or device


def in_sentence(metric: str) -> str:
    """Return a metric's name within a sentence: utilisation, TFLOP/s."""
    name = FIELDS[metric].label
    return name if name[1].isupper() else name.lower()


def chapter(index: FactIndex) -> list[str]:
    """Return the heading, accounts, the table and the reasons for missing values."""
    devices = index.devices()
    if not devices:
        return ["### Devices", "No device has been read yet."]
    source = sentence(given("readings come from {}", index.text("deck.source")))
    metrics = _by_metric(index, devices[0]) if len(devices) == 1 else _by_device(index, devices)
    common = _common_note(index, devices)
    accounts = (_account(index, device, common) for device in devices)
    return [
        "### Devices",
        paragraph(source, sentence(common)),
        *accounts,
        metrics,
        _absences(index, devices),
    ]


def _common_note(index: FactIndex, devices: list[str]) -> str:
    """Return a note that all of several devices share, so that it is given once; else an empty
    string.
    """
    notes = {index.text(f"{device}.note") or "" for device in devices}
    return notes.pop() if len(devices) > 1 and len(notes) == 1 else ""


def use(index: FactIndex, device: str) -> str:
    """Return `has been idle for 1 min` or `is busy: utilisation 93 %`."""
    words = index.text(f"{device}.use")
    if words is None:
        return "is in an unknown state"
    return f"has been {words}" if index.is_idle(device) else f"is {words}"


def _account(index: FactIndex, device: str, common: str) -> str:
    """Return the account of a device, without the note that `common` already gave."""
    fact = index.of(device)
    if index.has(f"{device}.use"):
        how = given(" ({})", fact("name")) + f" {use(index, device)}"
    else:
        how = given(" is {}", fact("name"))
    stands = sentence(f"**{called(index, device)}**", how)
    gaps = (
        sentence(given("there are readings {} only", fact("covered")))
        if _partial(index, device)
        else ""
    )
    return paragraph(stands, sentence("" if common else fact("note") or ""), gaps)


def _partial(index: FactIndex, device: str) -> bool:
    covered, length = index.number(f"{device}.covered"), index.number("span.length")
    return covered is not None and length is not None and covered < _COVERED * length


def _by_metric(index: FactIndex, device: str) -> str:
    when = _when(index, [device])
    return table(
        ("Metric", *when),
        [(name, *_cells(index, device, metric, when)) for metric, name in METRICS.items()],
    )


def _by_device(index: FactIndex, devices: list[str]) -> str:
    when = _when(index, devices)
    rows = [
        (
            called(index, device),
            *(" / ".join(_cells(index, device, metric, when)) for metric in METRICS),
        )
        for device in devices
    ]
    return table((" / ".join(when), *METRICS.values()), rows)


def _when(index: FactIndex, devices: list[str]) -> dict[str, str]:
    """Return the columns of values: without `now` if there are only facts about the past."""
    now = any(index.has(f"{device}.{metric}") for device in devices for metric in METRICS)
    return {word: suffix for word, suffix in WHEN.items() if suffix or now}


def _cells(index: FactIndex, device: str, metric: str, when: dict[str, str]) -> list[str]:
    return [index.text(f"{device}.{metric}{suffix}") or "N/A" for suffix in when.values()]


def _absences(index: FactIndex, devices: list[str]) -> str:
    """Return why the table has N/A: one sentence for all values missing for one reason."""
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for metric in METRICS:
        for device in devices:
            if absent := _absent(index, device, metric):
                lacking.setdefault((metric, *absent), []).append(called(index, device))
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (metric, form, why), who in lacking.items():
        where = "" if len(who) == len(devices) else f" of {listed(who)}"
        alike.setdefault((form, where, why), []).append(in_sentence(metric))
    return paragraph(
        *(
            sentence(form.format(listed(what) + where, are(what)), ": ", why)
            for (form, where, why), what in alike.items()
        )
    )


def _absent(index: FactIndex, device: str, metric: str) -> tuple[str, str] | None:
    """Return a phrase for what a metric lacks, and why.

    If there is no value now, a missing mean needs no mention.
    """
    if why := index.why_absent(f"{device}.{metric}"):
        return "{} {} N/A" + (" now" if index.text(f"{device}.{metric}.mean") else ""), why
    if why := index.why_absent(f"{device}.{metric}.mean"):
        return "mean and highest {} are N/A", why
    return None
