"""The README and the manual name commands, Python names, options and places that exist.

`tests/integration/test_manual_commands.py` runs the commands.
"""

import re

import pytest

from tests.manual_commands import python
from tests.manual_commands.excuses import EXCUSES, excuse_of
from tests.manual_commands.pages import PAGES, ROOT, blocks, commands, spans
from tests.manual_commands.words import wrong_words

LOG = ROOT / "tests" / "benchmarks" / "LOG.md"
DOCUMENTS = (
    *PAGES,
    *(ROOT / "docs").glob("*.md"),
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    LOG,
    *(LOG.parent / "log").glob("*.md"),
)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_words_of_every_command_are_known(page):
    ours = [text for text in (*spans(page), *commands(page)) if text.text.startswith("gpudeck ")]
    assert [(text, wrong) for text in ours if (wrong := wrong_words(text.text))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_code_names_only_what_exists(page):
    assert list(python.problems(page)) == []


@pytest.mark.parametrize(
    "code",
    [
        "accel.atention(q, k, v)",
        "accel.attention(q, k, v, casual=True)",
        "from gpudeck import Clint",
        "import gpudeck.accel.jaxx",
        "x = (",
    ],
)
def test_a_slip_in_python_code_is_found(tmp_path, code):
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{code}\n```\n")
    assert list(python.problems(page))


@pytest.mark.parametrize(
    "command",
    ["gpudeck submitt -- true", "gpudeck submit --gpu-count 1 -- true", "gpudeck models fetch x"],
)
def test_a_slip_in_a_command_is_found(command):
    assert wrong_words(command)


def test_a_command_of_several_lines_is_one_command(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n```sh\nls \\\n  x\necho 'a\nb'  # it's\n```\n")
    assert [tuple(text) for text in commands(page)] == [
        (3, "ls \\\n  x"),
        (5, "echo 'a\nb'  # it's"),
    ]


def test_every_excuse_is_used():
    used = {excuse_of(text.text) for page in PAGES for text in commands(page)}
    assert set(EXCUSES) <= used


def test_the_readme_is_short_and_its_code_stands_alone():
    assert len((ROOT / "README.md").read_text().split()) <= 900
    assert all(python.stands_alone(code.text) for code in blocks(ROOT / "README.md", "python"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_to_files_and_headings(document):
    for place, heading in _LINK.findall(document.read_text()):
        target = (document.parent / place).resolve() if place else document
        assert target.exists(), place
        if heading:
            assert heading in anchors(target.read_text()), f"{place}#{heading}"


def anchors(text):
    """Return the names of a document's headings in links to it."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
