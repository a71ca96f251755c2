"""Requests to accelerate code are read word by word, scan without running, and never act."""

from __future__ import annotations

import shlex
import textwrap
import time

import pytest

from gpudeck.assistant.facts.index import FactIndex
from gpudeck.assistant.intents.code_requests import read_code_request
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import understand
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.query.table import check
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.tools.code import find_attention
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.language.words import words
from gpudeck.scheduler.protocol.errors import NotFound, UserError

MODEL = textwrap.dedent("""
    import torch
    open("ran", "w").write("imported")
    N_HEAD, BLOCK_SIZE, N_EMBD, BATCH_SIZE = 1, 1, 1, 1

    def attend(q, k, v):
        return (q @ k.mT).softmax(-1) @ v

    def kept(q, k, v):
        a = (q @ k.mT).softmax(-1)
        return a @ v, a
""")

READ = {
    "en": [
        ("make my training faster", ""),
        ("Can you make my training faster?", ""),
        ("speed up my model please", ""),
        ("how can I make my training faster?", ""),
        ("find attention in ~/proj", "~/proj"),
        ("find slow attention in src/", "src/"),
        ("scan ./nets for attention layers", "./nets"),
        ("accelerate the attention in model.py", "model.py"),
        ("find attention in 'my folder; rm -rf ~'", "my folder; rm -rf ~"),
        ("show me the attention in the folder proj", "proj"),
    ],
    "de": [
        ("mach mein Training schneller", ""),
        ("Wie mache ich mein Training schneller?", ""),
        ("beschleunige bitte mein Modell", None),
        ("bitte beschleunige mein Modell", ""),
        ("finde Attention in ~/projekt", "~/projekt"),
        ("durchsuche ~/projekt nach Attention", "~/projekt"),
        ("beschleunige die Attention in „mein Ordner“", "mein Ordner"),
    ],
    "fr": [
        ("accélère mon entraînement", ""),
        ("rends mon entraînement plus rapide s'il te plaît", ""),
        ("trouve l'attention dans ~/projet", "~/projet"),
        ("cherche l’attention dans « mon dossier »", " mon dossier "),
    ],
    "es": [
        ("acelera mi entrenamiento", ""),
        ("haz mi entrenamiento más rápido, por favor", ""),
        ("busca la atención en ~/proyecto", "~/proyecto"),
        ("encuentra attention en 'mi carpeta'", "mi carpeta"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "request_text", "path"),
    [(language, text, path) for language, rows in READ.items() for text, path in rows],
)
def test_a_request_is_read_with_its_path_and_language(language, request_text, path):
    parsed = understand(request_text, Known(), State(), time.time(), shipped_reader())
    if path is None:  # what is not read whole is not read
        assert read_code_request(request_text) is None
        return
    assert parsed.request == Query("code", text=path)
    assert (parsed.language, parsed.unread) == (language, ())
    assert check(parsed.request) and not parsed.request.acts


@pytest.mark.parametrize(
    "text",
    [
        "make my training faster and cancel job 7", "find attention in ~/a; cancel all jobs",
        "find attention in ~/a and cancel job 3", "cancel my training", "make job 7 faster",
        "find attention in ~/proj\ncancel job 7", "mach mein Training schneller und brich Job 7 ab",
        "accélère mon entraînement et annule le job 7", "acelera mi entrenamiento y cancela el 7",
        "do not make my training faster", "why is my training slow?", "apply attention in ~/proj",
        "inject everything", "find attention in", "show jobs", "run attention",
    ],
)  # fmt: skip
def test_more_than_the_request_is_not_read_as_it_and_nothing_acts(text):
    assert read_code_request(text) is None
    parsed = understand(text, Known(), State(), time.time(), shipped_reader())
    assert not (isinstance(parsed.request, Query) and parsed.request.subject == "code")
    if "cancel job" in text and "attention" in text:
        assert not isinstance(parsed.request, Order), "an order behind a path is not carried out"


def asked(folder, named, language="en"):
    context = ToolContext(None, folder=str(folder), words=words(language))  # type: ignore[arg-type]
    result = find_attention(context, Query("code", text=named))
    return result, "\n".join(filter(None, result.render(FactIndex(result.facts))))


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    return folder


def test_the_answer_lists_what_can_be_linked_and_proposes_the_command(project):
    before = {f: f.read_bytes() for f in project.rglob("*")}
    result, text = asked(project.parent, "project")
    assert "2 found, 1 can be accelerated" in text
    assert "model.py:7" in text and "returned (line 11)" in text
    assert f"gpudeck inject diff {project}" in text
    assert result.folder == str(project) and result.action is None
    assert {f: f.read_bytes() for f in project.rglob("*")} == before, "nothing was run or changed"


@pytest.mark.parametrize(
    ("language", "part"),
    [
        ("de", "2 gefunden, 1 davon beschleunigbar"),
        ("fr", "2 trouvées, 1 peuvent"),
        ("es", "2 encontradas"),
    ],
)
def test_the_answer_is_in_the_language_of_the_request(project, language, part):
    assert part in asked(project, ".", language)[1]


@pytest.mark.parametrize(
    "name",
    ["; rm -rf ~", "$(touch ran)", "`touch ran`", "--yes", "a'b\"c", "**bold** [x](http:evil)",
     "<b>x", "%s {0} {path}", "名前", "a&b|c"],
)  # fmt: skip
def test_hostile_names_of_folders_are_shown_as_they_are_and_quoted(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    result, text = asked(tmp_path, name)
    assert result.folder == str(folder)
    shown = text.replace("\\", "")
    command = shown[shown.index("gpudeck inject diff") :].splitlines()[0]
    assert shlex.split(command) == ["gpudeck", "inject", "diff", str(folder)]
    assert "<b>" not in text and "**bold" not in text and "[x](" not in text
    assert not (tmp_path / "ran").exists()


def test_a_name_that_controls_a_terminal_is_refused_or_left_out(tmp_path):
    with pytest.raises(UserError, match="cannot be shown"):
        asked(tmp_path, "a\x1b[2Jb")
    folder = tmp_path / "evil\x1b[2J\u202e"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    result, text = asked(folder, "")
    assert "\x1b" not in text and "\u202e" not in text and "gpudeck inject" not in text
    assert result.folder == str(folder)


@pytest.mark.parametrize("named", ["missing", "~nobody-here/x", "x" * 500, "model.py/below"])
def test_a_path_that_is_none_is_one_line(project, named):
    with pytest.raises(NotFound, match="there is no file or folder"):
        asked(project, named)


def test_a_folder_without_attention_offers_nothing(tmp_path):
    (tmp_path / "x.py").write_text("print('softmax')\n")
    result, text = asked(tmp_path, ".")
    assert "There is no attention in" in text
    assert result.folder == ""
