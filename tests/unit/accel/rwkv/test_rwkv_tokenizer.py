"""The World tokenizer equals the `rwkv` package's, restores any bytes, and runs no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.tokenizer import Tokenizer
from tests.unit.accel.rwkv.rwkv_models import vocabulary_file

WORLD = Tokenizer.load(vocabulary_file())

_ORACLE = """
import json, sys
from rwkv.rwkv_tokenizer import TRIE_TOKENIZER
tokenizer = TRIE_TOKENIZER(sys.argv[1])
print(json.dumps([tokenizer.encode(text) for text in json.load(sys.stdin)]))
"""


@pytest.mark.parametrize(
    "every", [8, pytest.param(1, marks=pytest.mark.slow)], ids=["an eighth", "whole"]
)
def test_encoding_equals_that_of_the_rwkv_package(every: int, tmp_path: Path) -> None:
    """Use one process for many texts and, unless it has time, a part of the vocabulary with all
    bytes: the package's tokenizer takes seconds to load the whole.
    """
    lines = vocabulary_file().read_text(encoding="utf-8").splitlines(keepends=True)
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("".join(lines[:256] + lines[256::every]), encoding="utf-8")
    tokenizer = Tokenizer.load(vocabulary)
    texts = [
        "",
        " ",
        "\n\nUser: hi",
        "GPU 0: 71 °C, 612 TFLOP/s",
        "naïve 中文 한국어 🙂👩‍👩‍👧 \x00\x7f",
        "        def f(x):\n\treturn x",
    ]

    @settings(max_examples=400, database=None, deadline=None)
    @given(st.text(max_size=60))
    def collect(text) -> None:
        texts.append(text)

    collect()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ORACLE, str(vocabulary)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [tokenizer.encode(text) for text in texts] == json.loads(done.stdout.splitlines()[-1])


@given(st.binary(max_size=200))
def test_decoding_restores_any_bytes(data) -> None:
    assert WORLD.decode(WORLD.encode(data)) == data


def test_a_lone_surrogate_is_encoded() -> None:
    assert WORLD.decode(WORLD.encode("a\ud800b")) == b"a?b"


def test_the_end_token_has_no_bytes_and_an_unknown_token_shows() -> None:
    assert WORLD.decode([0]) == b""
    assert WORLD.decode([65535]).decode() == "\ufffd"


def test_any_vocabulary_of_the_format_works_and_a_missing_byte_is_named(tmp_path) -> None:
    file = tmp_path / "v.txt"
    file.write_text("1 'a' 1\n2 'b' 1\n3 'aab' 3\n4 b'\\xff' 1\n")
    small = Tokenizer.load(file)
    assert small.encode(b"aabaa\xff") == [3, 1, 1, 4]
    assert small.size == 5
    with pytest.raises(ModelError, match="no token for the byte 0x63"):
        small.encode("abc")


@pytest.mark.parametrize(
    "line",
    [
        "1 __import__('os').mkdir('SENTINEL') 1",
        "1 'a'.upper() 1",
        "1 'ab' 1",
        "1 42 1",
        "1 'a'",
        "x 'a' 1",
        "0 'a' 1",
        "1 '' 0",
        "1 b'\\u0100' 1",
        "1 'a' + 'b' 2",
        "1 'a' 1\n2 'a' 1",
        "",
    ],
)
def test_an_invalid_vocabulary_line_is_refused_and_never_evaluated(tmp_path, line) -> None:
    sentinel, file = tmp_path / "it-ran", tmp_path / "v.txt"
    file.write_text(line.replace("SENTINEL", str(sentinel)))
    with pytest.raises(ModelError, match="vocabulary"):
        Tokenizer.load(file)
    assert not sentinel.exists()


def test_a_missing_vocabulary_is_named_with_its_place(tmp_path) -> None:
    with pytest.raises(ModelError, match=r"no vocabulary at .*rwkv_vocab_v20230424.txt"):
        Tokenizer.load(tmp_path)
    with pytest.raises(ModelError, match=r"no vocabulary at .*rwkv_vocab_v20230424.txt"):
        Tokenizer.load(Path(tmp_path) / "model.pth")
