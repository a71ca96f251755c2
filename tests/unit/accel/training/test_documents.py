"""Data that people have: every part that cannot be used is reported with its place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.template import ChatTemplate
from gpudeck.accel.training import documents, shards
from gpudeck.accel.training.documents import Broken, Piece, read_file
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.shards import UNLEARNED, TokenData, prepare
from gpudeck.accel.training.tokenizers import ByteTokenizer, load_tokenizer

END = ByteTokenizer.end


def quiet(done: float, total: float) -> None:
    assert done <= total


def tokens_of(path: Path, cache: Path, *, skip_broken: bool = False) -> TokenData:
    return prepare(path, ByteTokenizer(), cache, skip_broken=skip_broken, report=quiet)


@pytest.mark.parametrize(
    ("name", "data", "line", "why"),
    [
        ("a.txt", b"", 0, "it is empty"),
        ("a.txt", b"one\ntwo\n\xff\n", 3, "it is not UTF-8"),
        ("a.txt", "hello".encode("utf-16"), 0, "it is in UTF-16"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', 2, "it is not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', 2, "it is not valid JSON"),
        ("a.jsonl", b"[1]\n", 1, "it is not a JSON object"),
        ("a.jsonl", b"[" * 100_000 + b"\n", 1, "it is not valid JSON"),
        ("a.jsonl", b'{"text": 1}\n', 1, "text is not a text"),
        ("a.jsonl", b'{"text": ""}\n', 1, "text is empty"),
        ("a.jsonl", b'{"chosen": "a", "rejected": "b"}\n', 1, "a pair of preferences"),
        ("a.jsonl", b'{"messages": []}\n', 1, "its last message is not the assistant's"),
        ("a.jsonl", b'{"messages": "hi"}\n', 1, 'a message lacks "role" or "content"'),
        ("a.jsonl", b'{"messages": [{"role": "user", "content": "a"}]}\n', 1, "nothing to learn"),
        (
            "a.jsonl",
            b'{"messages": [{"role": "assistant", "content": "a"}]}\n',
            1,
            "has no chat template",
        ),
        ("a.jsonl", b'{"prompt": "a"}\n', 1, "completion is not a text"),
        ("a.jsonl", b'{"b": "a"}\n', 1, 'it has no "text"'),
        ("a.jsonl", b"\n \n", 0, "it has no lines with JSON"),
        ("a.parquet", b"PAR1", 0, "it is not valid Parquet"),
    ],
)
def test_what_cannot_be_used_is_reported(
    tmp_path: Path, name: str, data: bytes, line: int, why: str
) -> None:
    (tmp_path / name).write_bytes(data)
    broken = [one for one in read_file(tmp_path / name) if isinstance(one, Broken)]
    assert [one.line for one in broken] == [line]
    assert why in str(broken[0].text)
    with pytest.raises(Refused, match="cannot be used"):
        tokens_of(tmp_path / name, tmp_path / "cache")


def test_a_line_that_is_too_long_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_LINE", 2**20)
    long = json.dumps({"text": "x" * 2**22})
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"text": "a"}}\n{long}\n{{"text": "b"}}\n')
    found = list(read_file(file))
    assert [one.text for one in found if isinstance(one, Piece)] == ["a", "b"]
    assert [(one.line, str(one.why)) for one in found if isinstance(one, Broken)] == [
        (2, "the line has over 1 MiB")
    ]


def test_pieces_of_a_text_put_together_are_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_PIECE", 5)
    text = "ä€𝄞\n" * 7 + "no line ends here, for longer than a piece"
    (tmp_path / "a.txt").write_text(text)
    pieces = [one for one in read_file(tmp_path / "a.txt") if isinstance(one, Piece)]
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_tokens_hold_documents_and_what_is_not_learned(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "x.txt").write_text("never read")
    (folder / "b.txt").write_text("bc")
    (folder / "a.jsonl").write_text('{"prompt": "p", "answer": "q"}\n{"text": "a"}\n')
    (folder / "bad.txt").write_bytes(b"ok\n\xff")
    data = tokens_of(folder, tmp_path / "cache", skip_broken=True)
    wanted = [END | UNLEARNED, ord("p") | UNLEARNED, ord("q"), END, ord("a"), END, *b"bc", END]
    assert data.take(0, len(data)).tolist() == wanted
    assert data.starts.tolist() == [0, 3, 5]
    assert [str(text).split(": ")[1] for text in data.index.broken] == [
        "it is not UTF-8; the file is not used from here on"
    ]


def test_tokens_are_made_once_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("hello")
    first = tokens_of(file, tmp_path / "cache")
    (made,) = (tmp_path / "cache").iterdir()
    before = (made / "index.json").stat().st_mtime_ns
    assert tokens_of(file, tmp_path / "cache").index == first.index
    assert (made / "index.json").stat().st_mtime_ns == before
    data = bytearray((made / "tokens-00000.bin").read_bytes())
    data[4] ^= 1
    (made / "tokens-00000.bin").write_bytes(data)
    with pytest.raises(
        Refused, match=r"damaged: tokens-00000\.bin has changed\. Remove the folder"
    ):
        tokens_of(file, tmp_path / "cache")


def test_tokens_cross_the_ends_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudeck.accel.training.shards._SHARD_TOKENS", 3)
    monkeypatch.setattr(documents, "_PIECE", 2)
    (tmp_path / "a.txt").write_text("abcdefghij\n" * 2)
    data = tokens_of(tmp_path / "a.txt", tmp_path / "cache")
    assert len(data.index.shards) > 2
    whole = [END | UNLEARNED, *(b"abcdefghij\n" * 2), END]
    for begin in range(len(whole)):
        for count in range(1, len(whole) - begin + 1):
            assert data.take(begin, count).tolist() == whole[begin : begin + count]


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("empty", "has no files"),
        ("pipe", "there is no file"),
        ("no", "there is no"),
    ):
        with pytest.raises(Refused, match=why):
            tokens_of(tmp_path / name, tmp_path / "cache")


def test_bytes_are_the_tokens_of_their_tokenizer_json(tmp_path: Path) -> None:
    text = "Grüße, 𝄞!\n\t\x00 end"
    ByteTokenizer().write(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    (mine,), (theirs,) = ByteTokenizer().encode([text]), loaded.encode([text])
    assert np.array_equal(mine, theirs)
    assert (loaded.end, loaded.vocabulary) == (ByteTokenizer.end, ByteTokenizer.vocabulary)
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(Refused, match=r"is no tokenizer\.json"):
        load_tokenizer(str(tmp_path / "bad.json"))


CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "one"},
    {"role": "user", "content": "More"},
    {"role": "assistant", "content": "two"},
]


def pieces_of(folder: Path, template: str) -> list[Piece | Broken]:
    file = folder / "chat.jsonl"
    file.write_text(json.dumps({"messages": CHAT}) + "\n")
    return list(read_file(file, lambda: ChatTemplate(template, {})))


def test_only_the_answers_of_a_chat_are_learned(tmp_path: Path) -> None:
    found = [one for one in pieces_of(tmp_path, tiny.TEMPLATE) if isinstance(one, Piece)]
    whole = ChatTemplate(tiny.TEMPLATE, {}).render(CHAT, prompt=False)
    assert "".join(one.text for one in found) == whole
    assert [one.text for one in found if one.learned] == ["one<|im_end|>\n", "two<|im_end|>\n"]
    assert [one.ends for one in found] == [False, False, False, True]


def test_a_template_that_forgets_its_reasoning_begins_a_document(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}(why)"
        "{% endif %}{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    found = [one for one in pieces_of(tmp_path, template) if isinstance(one, Piece)]
    assert [(one.text, one.learned, one.ends) for one in found] == [
        ("[user]Hi;[assistant]", False, False), ("(why)one;", True, True),
        ("[user]Hi;[assistant]one;[user]More;[assistant]", False, False), ("(why)two;", True, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('no') }}", "the chat cannot be written"),
        ("{{ add_generation_prompt }}", "does not continue its own prompt"),
    ],
)
def test_a_template_that_fails_is_reported(tmp_path: Path, template: str, why: str) -> None:
    (broken,) = pieces_of(tmp_path, template)
    assert isinstance(broken, Broken)
    assert broken.line == 1
    assert why in str(broken.text)


def test_chats_become_tokens_by_the_models_own_template(tmp_path: Path) -> None:
    tiny.make(tmp_path / "model")
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "job"}\n' + json.dumps({"messages": CHAT}) + '\n{"text": "GPU"}\n')
    tokenizer = load_tokenizer(str(tmp_path / "model"))
    data = prepare(file, tokenizer, tmp_path / "cache", skip_broken=False, report=quiet)
    raw = data.take(0, len(data))
    begins = data.starts.tolist()
    job, chat, gpu = np.split(raw, begins[1:])
    (text,) = tokenizer.encode([ChatTemplate(tiny.TEMPLATE, {}).render(CHAT, prompt=False)])
    assert (chat & (UNLEARNED - 1)).tolist() == text.tolist()
    learned = [int(token) for token in chat if not token & UNLEARNED]
    answers = tokenizer.encode(["one<|im_end|>\n", "two<|im_end|>\n"])
    assert learned == [*answers[0], *answers[1]]
    end = tokenizer.end
    assert (job[0], job[-1]) == (end | UNLEARNED, end)
    assert (gpu[0], gpu[-1]) == (end | UNLEARNED, end)


def test_rows_of_parquet_are_read_like_lines(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {"text": "a"}, {"prompt": "p", "answer": "q"}, {"messages": CHAT}, {"text": ""},
        {"chosen": "a", "rejected": "b"}, {"text": "bad"}, {},
    ]  # fmt: skip
    names = ("text", "prompt", "answer", "messages", "chosen", "rejected")
    table = pyarrow.table({name: [row.get(name) for row in rows] for name in names})
    bad = pyarrow.array([None if "text" not in r else r["text"].encode() for r in rows])
    bad = pyarrow.array([b"\xff" if v.as_py() == b"bad" else v.as_py() for v in bad]).view("string")
    file = tmp_path / "a.parquet"
    parquet.write_table(table.set_column(0, "text", bad), file)
    found = list(read_file(file, lambda: ChatTemplate(tiny.TEMPLATE, {})))
    assert [one.text for one in found if isinstance(one, Piece)][:3] == ["a", "p", "q"]
    assert sum(one.bare for one in found if isinstance(one, Piece)) == 4
    assert [(one.line, str(one.why)[:12]) for one in found if isinstance(one, Broken)] == [
        (4, "text is empt"), (5, "it is a pair"), (6, "it is not UT"), (7, 'it has no "t'),
    ]  # fmt: skip
    parquet.write_table(pyarrow.table({"other": [1]}), file)
    (broken,) = read_file(file)
    assert isinstance(broken, Broken)
    assert 'it has no "text"' in str(broken.text)


_LIMITED = """
import resource, sys
from itertools import islice
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2)
from gpudeck.accel.training.documents import read_file
print(*(len(piece.text) for piece in islice(read_file(Path(sys.argv[1])), 5)))
"""


def test_a_text_that_a_small_file_repeats_takes_its_memory_once(tmp_path: Path) -> None:
    """Read a file of some hundred bytes whose rows hold 48 GB."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    size, rows = 16_000_000, 3000
    same = pyarrow.array([0] * rows, type=pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(same, pyarrow.array(["x" * size]))
    file = tmp_path / "bomb.parquet"
    parquet.write_table(
        pyarrow.table({"text": texts}), file,
        compression="zstd", store_schema=False, dictionary_pagesize_limit=2**28,
    )  # fmt: skip
    assert file.stat().st_size < 10_000
    command = [sys.executable, "-c", _LIMITED, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(size)] * 5


def test_times_beyond_all_calendars_are_no_texts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for kind, value in (
        (pyarrow.date64(), 2**62), (pyarrow.duration("s"), 2**62),
        (pyarrow.time64("us"), 2**62), (pyarrow.timestamp("s", tz="No/Where"), 0),
    ):  # fmt: skip
        file = tmp_path / "times.parquet"
        parquet.write_table(pyarrow.table({"text": pyarrow.array([value], kind)}), file)
        (found,) = read_file(file)
        assert isinstance(found, Broken)
        assert "it has a value that cannot be read" in str(found.text)


def test_of_data_without_any_use_the_first_places_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "KEPT_BROKEN", 10)
    monkeypatch.setattr(shards, "_BATCH_PIECES", 7)
    file = tmp_path / "no.jsonl"
    file.write_text("x\n" * 100 + '{"text": "a text"}\n')
    data = tokens_of(file, tmp_path / "cache", skip_broken=True)
    assert (len(data.index.broken), data.index.unused) == (10, 100)
    assert [str(text).split(": ")[0] for text in data.index.broken] == [
        f"{file}, line {line}" for line in range(1, 11)
    ]
    with pytest.raises(Refused, match="100 parts of the data cannot be used"):
        tokens_of(file, tmp_path / "cache")
