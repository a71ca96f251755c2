"""The speed of a model is reported while it writes: seldom, and not from a few tokens."""

from __future__ import annotations

from gpudeck.assistant.engine import author
from gpudeck.assistant.engine.author import WritingSpeed


def test_the_speed_is_reported_twice_a_second_and_not_from_a_few_tokens(monkeypatch) -> None:
    now, reports = 100.0, list[str]()
    monkeypatch.setattr(author.time, "monotonic", lambda: now)
    speed = WritingSpeed("tiny", reports.append)
    for tokens in range(1, 71):
        speed.count(tokens)
        now += 1 / 64
    assert reports == [
        "the model tiny is writing: 33 tokens, 64 tokens/s",
        "the model tiny is writing: 65 tokens, 64 tokens/s",
    ]
    now += 5.0
    slow = WritingSpeed("tiny", reports.append)
    for tokens in (1, 2, 3):
        slow.count(tokens)
        now += 1.0
    assert len(reports) == 2
