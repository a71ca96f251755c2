"""What the command palette offers: pages, actions, jobs, settings and a question. Free of Qt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from gpudeck.app.format.job_rows import state_word
from gpudeck.app.language.texts import tr
from gpudeck.app.settings.form import SETTINGS
from gpudeck.app.shell.page_titles import page_key, title
from gpudeck.app.widgets.action_table import ACTIONS, key_names
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.snapshot import label

MOST = 12
"""Entries that are offered at once."""
_MOST_JOBS = 5
_NO_MATCH = -1


@dataclass(frozen=True)
class PaletteEntry:
    """Offer one thing."""

    kind: str
    """Page, Action, Job, Setting or Ask, in the window's language."""
    title: str
    run: Callable[[], object]
    keys: str = ""
    detail: str = ""
    words: str = ""
    """Other words that it is found by."""


def score(entry: PaletteEntry, text: str) -> int:
    """Return how well an entry matches: higher is better, below 0 is no match.

    Every word must begin a word of the entry, be in it, or be a subsequence of its title.
    """
    title = entry.title.casefold()
    rest = f"{entry.words} {entry.kind} {entry.detail}".casefold()
    total = 0
    for word in text.casefold().split():
        if title.startswith(word):
            total += 40
        elif f" {word}" in title:
            total += 30
        elif f" {word}" in f" {rest}":
            total += 15
        elif word in title:
            total += 10
        elif len(word) > 2 and _is_subsequence(word, title):
            total += 3
        else:
            return _NO_MATCH
    return total


def rank(entries: Iterable[PaletteEntry], text: str) -> list[PaletteEntry]:
    """Return the entries that match, the best first; all in their order without a text."""
    if not text.strip():
        return list(entries)[:MOST]
    scored = [(score(entry, text), entry) for entry in entries]
    found = [pair for pair in scored if pair[0] != _NO_MATCH]
    found.sort(key=lambda pair: -pair[0])  # stable: pages before actions, and so on
    return [entry for _, entry in found][:MOST]


def page_entries(
    pages: Iterable[str], show: Callable[[str], object], current: str
) -> list[PaletteEntry]:
    """Return the pages, without the one that is shown."""
    return [
        PaletteEntry(tr("Page"), title(name), partial(show, name), key_names(page_key(at)))
        for at, name in enumerate(pages, 1)
        if name != current
    ]


def action_entries(run: Callable[[str], object], current: str) -> list[PaletteEntry]:
    """Return the actions, those of the current page first."""
    listed = sorted((a for a in ACTIONS if a.listed), key=lambda a: a.page not in (current, ""))
    return [
        PaletteEntry(
            tr("Action"),
            tr(info.title),
            partial(run, info.name),
            ", ".join(map(key_names, info.keys)),
            title(info.page) if info.page else "",
            f"{tr(info.words)} {info.words}" if info.words else "",
        )
        for info in listed
    ]


def free_entries(gpus: Iterable[Device], free: Callable[[str], object]) -> list[PaletteEntry]:
    """Return the offers to free GPUs."""
    return [
        PaletteEntry(
            tr("Action"),
            tr("Free {gpu} for two hours", gpu=label(gpu)),
            partial(free, gpu.id),
            words="suspend game",
        )
        for gpu in gpus
    ]


def job_entries(jobs: Iterable[Job], show: Callable[[int], object]) -> list[PaletteEntry]:
    """Return jobs; the tooltip of each is its command."""
    return [
        PaletteEntry(
            tr("Job"),
            f"{job.id} · {job.spec.name}",
            partial(show, job.id),
            detail=tr(state_word(job)),
            words=" ".join((*job.spec.tags, job.spec.group, *job.spec.argv))[:300],
        )
        for job in jobs
    ]


def best_jobs(entries: list[PaletteEntry], text: str) -> list[PaletteEntry]:
    """Return the few jobs that match best, so that they leave room for the rest."""
    return rank(entries, text)[:_MOST_JOBS] if text.strip() else []


def setting_entries(show: Callable[[str], object]) -> list[PaletteEntry]:
    """Return the settings."""
    return [
        PaletteEntry(
            tr("Setting"),
            tr(setting.title),
            partial(show, setting.name),
            detail=tr(setting.group),
            words=f"{setting.name} {tr(setting.help)}",
        )
        for setting in SETTINGS
    ]


def question_entry(text: str, ask: Callable[[str], object]) -> list[PaletteEntry]:
    """Return the offer to ask the assistant what was typed."""
    words = " ".join(text.split())
    title = tr("Ask the assistant: {question}", question=words)
    return [PaletteEntry(tr("Ask"), title, lambda: ask(words))] if words else []


def _is_subsequence(word: str, title: str) -> bool:
    letters = iter(title)
    return all(letter in letters for letter in word)
