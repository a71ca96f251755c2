"""Collect the texts that the catalogues translate.

    python -m gpudeck.app.language.catalogues [--update]

The texts are those that the code marks (`tr`, `tr_count`, `phrase`, `phrase_count`, ...), and the
captions of tables that are shown. It prints what each catalogue lacks, and what it has that nothing
shows any more; a test fails while there is either. With --update it writes the catalogues again,
sorted and without the latter, so a translator may add entries at the end of a file.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from gpudeck.accel.workloads.catalog import WORKLOADS
from gpudeck.app.widgets.action_table import ACTIONS, KEYS
from gpudeck.assistant.housekeeping import TITLES
from gpudeck.assistant.language.marked_texts import messages as assistant_messages
from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.language.words import CATALOGUES
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS
from gpudeck.scheduler.protocol.setting_table import abouts

ROOT = Path(__file__).parents[2]
_WINDOW = {"tr": None, "tr_noop": None, "tr_count": (1, 2)}
_VALUES = {"phrase": None, "mark_phrase": None, "phrase_count": (1, 2)}
_HEADER = """msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=2; plural=({plural});\\n"
"""


@cache
def messages() -> dict[str, str]:
    """Return all texts, each with its plural form or an empty text."""
    found = dict(assistant_messages())
    for room in ("accel", "app", "assistant", "scheduler", "language", "gpudeck"):
        keywords = _WINDOW | _VALUES | ({"text": None} if room == "language" else {})
        rows = extract_from_dir(ROOT / room, [("**.py", "python")], keywords=keywords)
        for _, _, message, _, _ in rows:
            one, many = (message, "") if isinstance(message, str) else message[:2]
            found[one] = many or found.get(one, "")
    found |= {text: "" for text in _read_tables() if text not in found}
    return {text: plural for text, plural in found.items() if text and text != "{text}"}


def _read_tables() -> Iterator[str]:
    """Yield captions that are in English in tables; they are looked up where they are shown."""
    for action in ACTIONS:
        yield from (action.title, action.words)
    yield from (title for _, title, _ in KEYS)
    for field in FIELDS.values():
        yield from (field.label, field.meaning)
    for option in JOB_OPTIONS:
        yield from (option.label, option.hint or "")
    for about in abouts().values():
        yield from (about.group, about.title, about.help, about.measure)
    yield from TITLES.values()
    for workload in WORKLOADS:
        yield from (workload.title, workload.summary)
        for param in workload.params:
            yield from (param.group, param.label, param.help, param.auto)


@cache
def read_catalogue(language: Language) -> Catalog:
    """Return the catalogue of a language."""
    with (CATALOGUES / f"{language}.po").open("rb") as opened:
        return read_po(opened, locale=language, abort_invalid=True)


def translations(language: Language) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each text of a catalogue and its translation with all plural forms."""
    for message in read_catalogue(language):
        if message.id:
            text = message.id if isinstance(message.id, str) else message.id[0]
            forms = message.string or ""
            yield text, (forms,) if isinstance(forms, str) else tuple(forms)


def missing(language: Language) -> list[str]:
    """Return the texts that the catalogue of a language lacks."""
    known = {text for text, forms in translations(language) if all(forms)}
    return [text for text in messages() if text not in known]


def unused(language: Language) -> list[str]:
    """Return the texts of a catalogue that nothing shows."""
    shown = messages()
    return [text for text, _ in translations(language) if text not in shown]


def update(language: Language) -> None:
    """Write a catalogue again: sorted, and without the texts that nothing shows."""
    old, kept = read_catalogue(language), Catalog(locale=language)
    for message in old:
        text = message.id if isinstance(message.id, str) else message.id[0]
        if text in messages():
            kept.add(message.id, message.string, context=message.context)
    for message in kept:
        message.flags.clear()
    written = io.BytesIO()
    write_po(written, kept, width=100, sort_output=True, omit_header=True, no_location=True)
    header = _HEADER.format(language=language, plural=old.plural_expr.strip("()"))
    (CATALOGUES / f"{language}.po").write_bytes(header.encode() + b"\n" + written.getvalue())
    read_catalogue.cache_clear()


if __name__ == "__main__":
    for each in LANGUAGES[1:]:
        if "--update" in sys.argv[1:]:
            update(each)
        for lacked in missing(each):
            print(f"{each} lacks {lacked!r}")
        for found in unused(each):
            print(f"{each} does not need {found!r}")
