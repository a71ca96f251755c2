"""Wordings that people found odd stay out of everything that is shown, in four languages.

Searched are the strings of the code (without docstrings and comments), the catalogues and the
manual. A short phrase that also has a good use is quoted as it was shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.language import catalogues
from gpudeck.language.languages import Language

ROOT = Path(__file__).parents[2]
ODD = (
    r"reports no progress$(?<!it reports no progress)", r"needs a processor", r"run on \d+ already",
    r"nobody knows how long", r"how long is not known", r"it can never run: ", r"\bpale\b",
    r"looking back", r"\bheld down\b", r"held the clocks down", r"settling, quiet",
    r"it sees none", r"After any end of", r"wait and will never run", r"told to end",
    r"Mean utilisation", r"^Watched$", r"Most memory", r"Every state", r"^none raised$",
    r"held and idle", r"Tell the end of", r"Overlooked program", r"^Hours off$", r"Never proposed",
    r"Command at the end", r"Let GPUs sleep", r"^Largest log$", r"^Look again$",
    r"knows no processes", r"\d below 0\.98", r"holds no GPU", r"is being ended", r"Ctrl\+C leaves",
    r"\bThe Never button\b", r"of quiet$", r"nobody watched", r"^I read that as a wish",
    r"^Taken out of", r"\bis before it\b", r"tells no limit", r"was decided already",
    r"too much to read", r"can read and write no more", r"\bin vain\b", r"who occupies it",
    r"what is chosen", r"Follow the present", r"the daemon is gone; reconn", r"has it for itself",
    r"guessed tokens", r"^Ran for$", r"^Waited for$", r"raised now", r"nothing is to be done",
)  # fmt: skip
ODD_TRANSLATED = {
    "de": (r"wie lange, ist nicht bekannt", r"niemand hat es beobachtet", r"^Meister",
           r"als Wunsch, dass", r"genommen: ", r"läuft nie", r"nichts ist zu tun", r"^Lief$",
           r"\bRechner", r"\bLimits?\b"),
    "fr": (r"on ne sait pas", r"personne ne l'a observé", r"le souhait que", r"ne tournera jamais",
           r"est fait à"),
    "es": (r"no se sabe cuánto", r"nadie lo observó", r"el deseo de que", r"^Sacad",
           r"nunca se ejecutará"),
}  # fmt: skip
"""By language; what the catalogue says instead is read by a person, not by this test."""


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module with their lines, without docstrings."""
    alone = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def shown() -> Iterator[tuple[str, str]]:
    """Yield each text that may be shown, with where it is."""
    for package in ("app", "scheduler", "assistant", "language"):
        for file in (ROOT / package).rglob("*.py"):
            read_only = {"training", "intents", "checker"}  # what people type, and texts to judge
            if not read_only & set(file.parts):
                for line, text in strings(ast.parse(file.read_text())):
                    yield f"{file.relative_to(ROOT)}:{line}", text
    for file in (ROOT / "docs" / "manual").glob("*.md"):
        yield str(file.relative_to(ROOT)), file.read_text()
    yield "docs/commands.md", (ROOT / "docs" / "commands.md").read_text()
    yield "docs/settings.md", (ROOT / "docs" / "settings.md").read_text()
    for text in catalogues.messages():
        yield "the catalogues", text


def test_no_odd_wording_is_shown() -> None:
    odd = re.compile("|".join(ODD))
    found = [f"{where}: {match[0]!r}" for where, text in shown() if (match := odd.search(text))]
    assert not found


@pytest.mark.parametrize("language", ODD_TRANSLATED)
def test_no_odd_wording_is_in_a_catalogue(language: Language) -> None:
    odd = re.compile("|".join(ODD_TRANSLATED[language]))
    translated = [form for _, forms in catalogues.translations(language) for form in forms]
    assert translated
    assert not [form for form in translated if odd.search(form)]


def test_each_command_that_a_text_names_exists() -> None:
    known = {command.name for command in COMMANDS}
    named = re.compile(r"(?:`|: |with )gpudeck ([a-z][a-z-]+)")
    found = [
        f"{where}: {name}"
        for where, text in shown()
        for name in named.findall(text)
        if name not in known
    ]
    assert found == []


def test_an_odd_wording_would_be_found() -> None:
    tree = ast.parse('def f(n):\n    """Ran for"""\n    return f"Job {n} is being ended"\n')
    assert re.search("|".join(ODD), [text for _, text in strings(tree)][-1])
