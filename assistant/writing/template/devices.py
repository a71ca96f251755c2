"""Devices in words: how each stands, a table of its metrics, and why some have no value."""

from __future__ import annotations

from assistant.writing.template.book import Book
from assistant.writing.template.words import are, given, listed, paragraph, sentence, table

METRICS = {
    "util": "Utilisation",
    "mem_used": "Memory used",
    "tflops": "TFLOP/s",
    "temp": "Temperature",
    "power": "Power",
}
WHEN = {"now": "", "mean": ".mean", "highest": ".max"}
_COVERED = 0.9
"""Readings of less than this share of the time are worth a sentence."""


_OTHERS = {"clock_sm": "SM clock", "fan": "Fan"}
"""Metrics that are told when asked for."""


def called(book: Book, device: str) -> str:
    """GPU 0"""
    return book.said(f"{device}.label") or device


def in_sentence(metric: str) -> str:
    """Its name within a sentence: utilisation, TFLOP/s."""
    name = (METRICS | _OTHERS)[metric]
    return name if name[1].isupper() else name.lower()


def chapter(book: Book) -> list[str]:
    """Heading, accounts, table and the reasons for what is missing in it."""
    devices = book.devices()
    if not devices:
        return ["### Devices", "No device has been read yet."]
    source = sentence(given("readings come from {}", book.said("deck.source")))
    metrics = _by_metric(book, devices[0]) if len(devices) == 1 else _by_device(book, devices)
    common = _common_note(book, devices)
    accounts = (_account(book, device, common) for device in devices)
    return [
        "### Devices",
        paragraph(source, sentence(common)),
        *accounts,
        metrics,
        _absences(book, devices),
    ]


def _common_note(book: Book, devices: list[str]) -> str:
    """What is noted of several devices alike, and so is said once; empty where it is not."""
    notes = {book.said(f"{device}.note") or "" for device in devices}
    return notes.pop() if len(devices) > 1 and len(notes) == 1 else ""


def use(book: Book, device: str) -> str:
    """has been idle for 1 min, or: is busy: utilisation 93 %"""
    words = book.said(f"{device}.use")
    if words is None:
        return "is busy or not: nobody told"
    return f"has been {words}" if idle(book, device) else f"is {words}"


def idle(book: Book, device: str) -> bool:
    return (book.said(f"{device}.use") or "").startswith("idle")


def _account(book: Book, device: str, common: str) -> str:
    """`common`: what was said of all of them already."""
    said = book.about(device)
    stands = sentence(
        f"**{called(book, device)}**", given(" ({})", said("name")), " ", use(book, device)
    )
    gaps = (
        sentence(given("there are readings {} only", said("covered")))
        if _partial(book, device)
        else ""
    )
    return paragraph(stands, sentence("" if common else said("note") or ""), gaps)


def _partial(book: Book, device: str) -> bool:
    covered, length = book.number(f"{device}.covered"), book.number("span.length")
    return covered is not None and length is not None and covered < _COVERED * length


def _by_metric(book: Book, device: str) -> str:
    return table(
        ("Metric", *WHEN),
        [(name, *_cells(book, device, metric)) for metric, name in METRICS.items()],
    )


def _by_device(book: Book, devices: list[str]) -> str:
    rows = [
        (called(book, device), *(" / ".join(_cells(book, device, metric)) for metric in METRICS))
        for device in devices
    ]
    return table((" / ".join(WHEN), *METRICS.values()), rows)


def _cells(book: Book, device: str, metric: str) -> list[str]:
    return [book.said(f"{device}.{metric}{suffix}") or "N/A" for suffix in WHEN.values()]


def _absences(book: Book, devices: list[str]) -> str:
    """Why there is N/A in the table: a sentence for all that is missing for the same reason on the same devices."""
    lacking: dict[tuple[str, str, str], list[str]] = {}
    for metric in METRICS:
        for device in devices:
            if absent := _absent(book, device, metric):
                lacking.setdefault((metric, *absent), []).append(called(book, device))
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


def _absent(book: Book, device: str, metric: str) -> tuple[str, str] | None:
    """How to say what the metric lacks, and why; without a value now, that it has no mean either goes without saying."""
    if why := book.missing(f"{device}.{metric}"):
        return "{} {} N/A" + (" now" if book.said(f"{device}.{metric}.mean") else ""), why
    if why := book.missing(f"{device}.{metric}.mean"):
        return "mean and highest {} are N/A", why
    return None
