"""Collect the texts that the window's catalogues translate.

    python -m gpudeck.app.language.messages

They are those that the code of app marks, and the captions of tables that the window shows. It
prints what each catalogue lacks, and what it has that is not shown any more; a test fails while
there is either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po

from gpudeck.accel.workloads.catalog import WORKLOADS
from gpudeck.app.language.texts import CATALOGUES, LANGUAGES
from gpudeck.app.widgets.action_table import ACTIONS, KEYS
from gpudeck.assistant.housekeeping import TITLES
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS

ROOT = Path(__file__).parents[1]
KEYWORDS = {"tr": None, "tr_noop": None, "tr_count": (1, 2)}


@cache
def messages() -> dict[str, set[str]]:
    """Return the catalogues that each text is for; a plural text goes by its first form."""
    found = defaultdict[str, set[str]](set)
    rows = extract_from_dir(ROOT, [("**.py", "python")], keywords=KEYWORDS, comment_tags=())
    for file, _, message, _, _ in rows:
        if (text := message if isinstance(message, str) else message[0]) and text != "{text}":
            found[text].add(Path(file).parts[0].removesuffix(".py"))
    for name, text in _of_tables():
        if text:
            found[text].add(name)
    return dict(found)


def _of_tables() -> Iterator[tuple[str, str]]:
    """Yield catalogues, and captions that are in English in tables.

    The window looks them up where it shows them.
    """
    for action in ACTIONS:
        yield from (("actions", text) for text in (action.title, action.words))
    yield from (("actions", title) for _, title, _ in KEYS)
    for field in FIELDS.values():
        yield from (("fields", text) for text in (field.label, field.meaning))
    for option in JOB_OPTIONS:
        yield from (("jobs", text) for text in (option.label, option.hint or ""))
    yield from (("cleanup", text) for text in TITLES.values())
    for workload in WORKLOADS:
        yield from (("parameters", text) for text in (workload.title, workload.summary))
        for param in workload.params:
            texts = (param.group, param.label, param.help, param.auto)
            yield from (("parameters", text) for text in texts)


def translations(language: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the name of a catalogue, a text and its translation with all plural forms."""
    for file in sorted(CATALOGUES.glob(f"*.{language}.po")):
        with file.open("rb") as opened:
            catalogue = read_po(opened, locale=language, abort_invalid=True)
        for message in catalogue:
            if message.id:
                text = message.id if isinstance(message.id, str) else message.id[0]
                forms = message.string or ""
                forms = (forms,) if isinstance(forms, str) else tuple(forms)
                yield file.name.split(".")[0], text, forms


def missing(language: str) -> dict[str, set[str]]:
    """Return the texts that no catalogue of a language has, with their catalogues."""
    known = {text for _, text, forms in translations(language) if all(forms)}
    return {text: packages for text, packages in messages().items() if text not in known}


def unused(language: str) -> list[tuple[str, str]]:
    """Return the texts in catalogues that the code does not show, with their catalogues."""
    shown = messages()
    return [(name, text) for name, text, _ in translations(language) if text not in shown]


if __name__ == "__main__":
    for each in LANGUAGES[1:]:
        for lacked, where in missing(each).items():
            print(f"{each} lacks ({', '.join(sorted(where))}): {lacked!r}")
        for catalogue, text in unused(each):
            print(f"{each} does not need ({catalogue}): {text!r}")
