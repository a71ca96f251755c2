"""Linking a notebook changes the code that is linked, and no other byte of it."""

from __future__ import annotations

import difflib
import json

import pytest

from gpudeck.accel.inject.rewrite import changes

LINES = ["import torch\n", "def attend(q, k, v):\n", "    return (q @ k.mT).softmax(-1) @ v  # é\n"]
IMPORT = "from gpudeck.accel.inject import link as _gpudeck\n"
LINKED = [
    *LINES[:2],
    "    return _gpudeck.attend((_gpudeck.scores(q, k.mT)).softmax(-1), v)  # é\n",
]
OTHER = (
    b'{"cell_type":"markdown","source":"1\\/2 \\u00e9 \xc3\xa9 \\ud83d\\ude00 \\ud800",'
    b'"metadata":{"a":1e400,"b":1.50,"c":-0,"d":NaN,"a":2}}'
)


def listed(lines: list[str]) -> bytes:
    return b"[\t" + b",\r\n\t\t".join(json.dumps(line).encode() for line in lines) + b" ]"


def single(lines: list[str]) -> bytes:
    return json.dumps("".join(lines), ensure_ascii=False).encode()


def escaped(lines: list[str]) -> bytes:
    return b'"' + b"".join(b"\\u%04x" % ord(c) for c in "".join(lines)) + b'"'


def notebook(source: bytes) -> bytes:
    return (
        b'\xef\xbb\xbf\r\n{\t"nbformat":4 ,"cells" : [' + OTHER + b",\r\n\t{"
        b'"cell_type":"code","source":' + source + b',"outputs":[ ]},' + OTHER + b"]\r\n}  \n\n"
    )


@pytest.mark.parametrize("form", [listed, single])
def test_only_the_linked_code_differs(tmp_path, form):
    path = tmp_path / "model.ipynb"
    path.write_bytes(notebook(form(LINES)))
    (made,), _ = changes([path])
    assert made.after == notebook(form([IMPORT, *LINKED]))


def test_escaped_characters_stay_escaped(tmp_path):
    path = tmp_path / "model.ipynb"
    path.write_bytes(notebook(escaped(LINES)))
    (made,), _ = changes([path])
    cells = json.loads(made.after.decode("utf-8-sig"))["cells"]
    assert cells[1]["source"] == "".join([IMPORT, *LINKED])
    kept = difflib.SequenceMatcher(None, made.before, made.after, autojunk=False)
    removed = [made.before[a:b] for tag, a, b, *_ in kept.get_opcodes() if tag != "equal"]
    assert len(b"".join(removed)) < 40


def test_code_over_two_lines_of_a_list_and_crlf_within_the_code(tmp_path):
    path = tmp_path / "model.ipynb"
    code = [
        "import torch\r\n", "%time 1\r\n", "a = (q\r\n", "  .matmul(\r\n",
        "  k.mT)).softmax(-1)\r\n", "y = a.matmul(v)",
    ]  # fmt: skip
    path.write_bytes(notebook(listed(code)))
    (made,), _ = changes([path])
    _, cell, _ = json.loads(made.after.decode("utf-8-sig"))["cells"]
    assert "".join(cell["source"]) == (
        IMPORT.replace("\n", "\r\n") + "import torch\r\n%time 1\r\n"
        "a = (_gpudeck.matmul(q, k.mT)).softmax(-1)\r\ny = a.matmul(v)"
    )
    before, after = (raw.split(b"softmax")[0] for raw in (made.before, made.after))
    assert before.split(b"[\t")[0] == after.split(b"[\t")[0]
