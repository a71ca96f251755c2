"""The cache of long prompts on disk: it outlives the engine, is private, bounded, and not believed
when it is damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.engine import Engine
from gpudeck.accel.serving.request import Request, Sampling
from gpudeck.assistant.inference.prompt_store import PromptStore, model_key

PROMPT = tuple(5 + (7 * i + i // 11) % 500 for i in range(600))
ASKED = Request(PROMPT, 12, Sampling(temperature=0.0), ignore_end=True)
LIMIT = 2**24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny.make(folder)
    return folder


def asked(folder, root, key="k", limit=LIMIT, cache="auto"):
    """Return the answer of a new engine that uses the store, and how it ended."""
    store = PromptStore(root, key, limit)
    engine = Engine.load(folder, cache_tokens=1024, cache=cache, store=store)
    stream = engine.submit(ASKED)
    while engine.step():
        pass
    store.close()
    assert store.problem == ""
    text = stream.text()
    assert stream.ended is not None
    return text, stream.ended


@pytest.mark.parametrize("cache", ["auto", "int8"])
def test_a_prompt_is_read_by_the_next_engine_and_the_answer_is_the_same(folder, tmp_path, cache):
    root = tmp_path / "prompts"
    text, ended = asked(folder, root, cache=cache)
    assert ended.cached_tokens == 0
    files = list(root.glob("k/*"))
    assert len(files) == 600 // 16 and {f.stat().st_mode & 0o777 for f in files} == {0o600}
    assert (root / "k").stat().st_mode & 0o777 == 0o700
    again, ended = asked(folder, root, cache=cache)
    assert (again, ended.cached_tokens) == (text, 592)
    assert asked(folder, root, key="other", cache=cache)[1].cached_tokens == 0


def test_damaged_and_cut_files_are_not_believed(folder, tmp_path):
    root = tmp_path / "prompts"
    text, _ = asked(folder, root)
    first, second, *_ = sorted(root.glob("k/*"))
    data = first.read_bytes()
    first.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    second.write_bytes(data[: len(data) // 2])
    again, ended = asked(folder, root)
    assert again == text and ended.cached_tokens < 592
    asked(folder, root)  # nothing behind the first damaged block was looked at before
    assert asked(folder, root)[1].cached_tokens == 592, "they were written anew"
    (root / "k" / "x").write_bytes(b"")
    link = sorted(root.glob("k/*"))[0]
    link.unlink()
    link.symlink_to("/dev/zero")
    assert asked(folder, root)[0] == text


def test_the_least_recently_used_prompts_go_beyond_the_limit(folder, tmp_path):
    root = tmp_path / "prompts"
    asked(folder, root)
    size = sum(f.stat().st_size for f in root.glob("k/*"))
    asked(folder, root, key="other", limit=size)
    PromptStore(root, "other", size).close()  # checks the limit as it starts
    assert sum(f.stat().st_size for f in root.glob("*/*")) <= size
    assert len(list(root.glob("other/*"))) == 600 // 16 and not list(root.glob("k/*"))


def test_a_full_disk_ends_the_writing_and_not_the_answers(folder, tmp_path, monkeypatch):
    def full(self, digest, parts):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PromptStore, "_write", full)
    store = PromptStore(tmp_path / "prompts", "k", LIMIT)
    engine = Engine.load(folder, cache_tokens=1024, store=store)
    stream = engine.submit(ASKED)
    while engine.step():
        pass
    store.close()
    assert stream.ended is not None and stream.ended.reason == "length"
    assert "No space left" in store.problem


def test_the_key_follows_the_weights_and_the_formats(folder, tmp_path):
    tiny.make(tmp_path / "other", seed=3)
    keys = {
        model_key(folder, "cpu", "auto"), model_key(folder, "cuda", "auto"),
        model_key(folder, "cpu", "int8"), model_key(tmp_path / "other", "cpu", "auto"),
    }  # fmt: skip
    assert len(keys) == 4 and model_key(folder, "cpu", "auto") in keys
    assert replace(ASKED, limit=1).prompt == PROMPT
