"""Answers say what is not known."""

from __future__ import annotations

from datetime import datetime

from gpudeck.assistant.answers.listings import processes
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.rows import Note, Rows
from gpudeck.language.words import words

NOW = datetime(2026, 11, 23, 15, 20).timestamp()


def test_a_recording_is_not_said_to_have_no_processes() -> None:
    rows = Rows("processes", (), (), "NVML processes", NOW, notes=(Note("unseen", ()),))
    assert "not known" in processes(Query("processes"), rows, words("en"))[0]
    read_now = Rows("processes", (), (), "NVML processes", NOW)
    assert processes(Query("processes"), read_now, words("en")) == ["No process uses a GPU."]
