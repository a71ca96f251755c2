"""How fast a model writes is told while it does: seldom, and once there is enough to tell."""

from __future__ import annotations

from assistant.engine import pace
from assistant.engine.pace import Pace


def test_the_rate_is_told_twice_a_second_and_not_from_a_few_tokens(monkeypatch) -> None:
    now, said = 100.0, list[str]()
    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    meter = Pace("tiny", said.append)
    for tokens in range(1, 71):
        meter.count(tokens)
        now += 1 / 64
    assert said == [
        "the model tiny writes: 33 tokens, 64 tok/s",
        "the model tiny writes: 65 tokens, 64 tok/s",
    ]
    now += 5.0
    slow = Pace("tiny", said.append)
    for tokens in (1, 2, 3):
        slow.count(tokens)
        now += 1.0
    assert len(said) == 2
