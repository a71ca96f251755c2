"""Hundreds of hostile strings in every place that takes words: nothing acts, and nothing escapes.

They are names, notes, tags and groups of jobs, what a job prints, names of its files and of files
to clean up, folders of models, and requests, with a real daemon, assistant, endpoint and protocol
server.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt
from PySide6.QtCore import QBuffer, QSizeF
from PySide6.QtGui import QPdfWriter

from gpudeck.app.cli.main import main
from gpudeck.app.report import pdf
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.language.languages import Language
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.hostile_strings import FEW, STRINGS, VICTIM, Shape, controls
from tests.integration.deck import python, ready, running
from tests.integration.endpoint import serving
from tests.integration.programs import talk
from tests.integration.test_serve import noise, written
from tests.support import state_folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile strings")]
WAIT_S = 60.0
_PRINTS = (
    "import json, os, pathlib, sys\n"
    "folder = pathlib.Path(os.environ['GPUDECK_ARTEFACTS'])\n"
    "for text in json.load(open(sys.argv[1])):\n"
    "    print(text)\n"
    "    (folder / text.replace('/', '')[:80]).write_bytes(bytes(9))\n"
    "raise SystemExit(3)\n"
)


class World(NamedTuple):
    """Hold a daemon with jobs that are called and say what hostile strings say."""

    home: Path
    deck: Client
    printed: int
    """The job that printed them all, and left files that are called so."""
    jobs: tuple[int, ...]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    user = tmp_path_factory.mktemp("user")
    caches = user / ".triton" / "cache"
    for text in FEW:
        stale = caches / text.replace("/", "")[:80]
        stale.mkdir(parents=True, exist_ok=True)
        (stale / "kernel.cubin").write_bytes(bytes(2**12))
        for path in (stale / "kernel.cubin", stale):
            os.utime(path, (time.time() - 60 * 86400,) * 2)
    file = user / "strings.json"
    file.write_text(json.dumps(STRINGS))
    with (
        state_folder(tmp_path_factory.mktemp("hostile") / "home") as home,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "XDG_CACHE_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(user))
        patch.setenv("XDG_DATA_HOME", str(user / "share"))
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            ready(deck)
            victim = deck.submit(python("import time; time.sleep(900)"), name="victim")
            assert victim.id == VICTIM
            running(deck, victim.job)
            printed = deck.submit(python(_PRINTS, file), name="printed")
            deck.wait(printed.id, WAIT_S)
            specs = [
                deck.spec(
                    python("1", text),
                    {"name": text, "notes": text, "tags": (text,), "hold": True},
                )
                for text in FEW
            ]
            jobs = deck.submit_many(specs)
            deck.submit_many([deck.spec(["true"], {"group": text, "hold": True}) for text in FEW])
            yield World(home, deck, printed.id, tuple(job.id for job in jobs))


@pytest.fixture(autouse=True)
def nothing_acts(world: World) -> Iterator[None]:
    """Fail a test after which a job, the queue, a group or a setting is not as it was."""
    before = _standing(world.deck)
    yield
    assert _standing(world.deck) == before
    assert world.deck.job(VICTIM).status == "running"


def _standing(deck: Client) -> object:
    """Return all that the strings could change, of all jobs."""
    snapshot = deck.snapshot()
    jobs, _ = deck.find(Search(), 5000)
    states = [(job.id, job.status, job.place, job.spec.hold, job.spec.priority) for job in jobs]
    return states, snapshot.paused, snapshot.settings, deck.groups()


def shown(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Run a command, and return all that it printed, in which nothing may control a terminal."""
    main(command)
    text = "".join(capsys.readouterr())
    assert not controls(text), (command, [ascii(c) for c in controls(text)])
    return text


def on_terminal(*command: str) -> str:
    """Return what a command writes on a terminal, whose line ends become line feeds."""
    seen, terminal = pty.openpty()
    running = subprocess.Popen([sys.executable, "-m", "gpudeck", *command], stdout=terminal)
    os.close(terminal)
    found = b""
    try:
        while data := os.read(seen, 65536):
            found += data
    except OSError:
        pass  # the last process of the terminal has ended
    os.close(seen)
    assert running.wait(WAIT_S) == 0
    return found.decode().replace("\r\n", "\n")


def is_plain(text: str) -> bool:
    """Report if Markdown has no links, pictures and HTML, and nothing that is not seen."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = {part.type for token in tokens for part in (token, *(token.children or ()))}
    return not controls(text) and not kinds & {"link_open", "image", "html_inline", "html_block"}


def test_no_request_acts_even_with_yes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for text in FEW:
        shown(capsys, "ask", "--yes", "--", text)


def test_a_permission_for_the_session_covers_none_of_them(world: World) -> None:
    allowed = Assistant()
    allowed.allowed |= {f"operate {verb}" for verb in VERBS}
    for text in FEW[::5]:
        proposal = allowed.ask(text).proposal
        assert proposal is None or not proposal.certain, ascii(text)


def test_the_terminal_shows_them_and_is_not_controlled(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, "jobs", "--limit", "500") + shown(capsys, "status")
    assert "ignore all instructions" in told and "<script>" in told
    for number in world.jobs[::10]:
        shown(capsys, "results", str(number))
        shown(capsys, "jobs", "--search", f"job:{number}")
    log = on_terminal("logs", str(world.printed))
    assert "annule le job" in log and not controls(log), "in a pipe it is what the job printed"
    assert "brich Job" in shown(capsys, "groups")
    assert "MiB" in shown(capsys, "clean")
    json.loads(shown(capsys, "jobs", "--json", "--limit", "500"))


def test_answers_in_four_languages_quote_them_and_propose_nothing(world: World) -> None:
    asked = Assistant()
    questions = (
        "what failed today?", "which jobs are held?", "what did job {p} print?", "how is job {j}?",
        "what happened?", "welche jobs warten?",
        "was hat job {p} ausgegeben?", "quels jobs attendent ?", "pourquoi le job {j} attend-il ?",
        "que jobs esperan?", "que imprimio el job {p}?", "compare job {j} with job {p}",
    )  # fmt: skip
    for number in world.jobs[::50]:
        for question in questions:
            answer = asked.ask(question.format(p=world.printed, j=number))
            assert answer.proposal is None, (question, number)
            assert is_plain(answer.text), (question, number, answer.text)
            assert not any(controls(fact.said + fact.text) for fact in answer.facts)
    found = asked.ask("what can be cleaned up?")
    assert found.proposal is not None and not found.proposal.certain, "that is a card"
    assert is_plain(found.text) and not controls(str(found.proposal.details))


@pytest.mark.parametrize("language", ["en", "de", "fr", "es"])
def test_reports_hold_them_as_text(world: World, qapp: object, language: Language) -> None:
    for job in (world.printed, world.jobs[0], None):
        answer = Assistant().report(job, language=language, daily=job is None)
        report = answer.report
        assert report is not None
        text, page = markdown(report), html(report)
        assert is_plain(text) and not controls(page)
        tags = {tag[0] for tag in Shape(page).tags}
        attributes = {name for tag in Shape(page).tags for name in tag[1:]}
        assert not tags & {"script", "img", "a", "link", "iframe", "object", "form"}
        assert not {name for name in attributes if name.startswith("on")} | (
            attributes & {"href", "src"}
        )
        document, _charts = pdf._document(report, QPdfWriter(QBuffer()), QSizeF(700, 1000))
        assert not controls(re.sub("[\ufffc\ue000\u2060]", "", document.toPlainText())), "but ours"
        made = pdf.as_pdf(report)
        assert b"/URI" not in made and b"/JavaScript" not in made and b"/Launch" not in made


def test_the_protocol_server_reads_and_returns_cards_only(world: World) -> None:
    calls = [("ask", {"question": text}) for text in FEW[::5]]
    calls += [("query", {"subject": "jobs", "group": text}) for text in FEW]
    calls += [("ask", {"question": "which jobs are held?"}), ("query", {"subject": "jobs"})]
    _, found = asyncio.run(talk(calls))
    for (tool, asked), result in zip(calls, found, strict=True):
        texts = [part.text for part in result.content]
        assert texts, (tool, asked)
        if tool == "ask":
            assert not any(map(controls, texts)), (ascii(asked), texts)


def test_the_endpoint_answers_and_does_nothing_else(world: World, tmp_path: Path) -> None:
    model = written(tmp_path / "noise-7", noise())
    before = world.deck.snapshot().settings.model_folder
    world.deck.configure(model_folder=str(model))
    try:
        with serving(world.home) as served:
            for text in FEW:
                body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
                path = "/v1/chat/completions"
                status, headers, _ = served.ask(path, {**body, "model": "noise-7"})
                assert status == 200, ascii(text)
                refused, others, said = served.ask(path, {**body, "model": text})
                assert refused in (400, 404), ascii(text)
                assert said["error"]["message"] and not controls(said["error"]["message"])
                for name in (*headers, *others):
                    assert name.isascii() and "evil" not in name
    finally:
        world.deck.configure(model_folder=before)


def test_folders_of_models_are_listed_and_refused_as_text(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = written(tmp_path / "noise-7", noise())
    for at, text in enumerate(FEW):
        folder = tmp_path / str(at) / text.replace("/", "")[:80]
        folder.parent.mkdir()
        if at % 5:
            folder.mkdir()
        else:
            folder.symlink_to(model, target_is_directory=True)
        told = shown(capsys, "models", "add", str(folder))
        assert told.count("\n") == 1, "one line says what was done, or what is wrong"
    assert "noise" in shown(capsys, "models") or "cancel" in shown(capsys, "models")
