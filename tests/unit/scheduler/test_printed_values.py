"""What jobs print of their training becomes their result; other output does not."""

from __future__ import annotations

import pytest

from gpudeck.scheduler.protocol.printed_values import MAX_LINE, last_values, values_of


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b'{"step": 3, "loss": 2.5}', {"step": 3, "loss": 2.5}),
        (b"{'loss': '2.5', 'epoch': 0.1}\r", {"loss": 2.5, "epoch": 0.1}),  # Trainer's
        (b"step=3 loss=2.5e-1", {"step": 3, "loss": 0.25}),
        (b"epoch: 1, train/loss: .5 | acc: 0.9", {"epoch": 1, "train/loss": 0.5, "acc": 0.9}),
        (b'{"loss": 2.5, "name": "a", "ok": true, "deep": {"x": 1}}', {"loss": 2.5}),
        (b'{"loss": NaN}', {}),
        (b"loss=nan step=2", {"step": 2}),
        (b'{"loss": 1e999, "step": 1}', {"step": 1}),
        (b'{"gpudeck": "progress", "done": 1, "total": 2}', {}),
        (b"HOME=1", {}),
        (b"see x=1 for more", {}),
        (b"a=1b", {}),
        (b"12:30:05", {}),
        (b"[1, 2]", {}),
        (b"{1, 2}", {}),
        (b"{" * 2000 + b"}" * 2000, {}),
        (b"{'a': " + b"[" * 1500 + b"}", {}),
        (b"loss=123456 " * 300 + b"!", {}),  # almost values: must not take for ever
        (b"a=1" + b" " * 3000 + b"!", {}),
        (b"\xff\x00{}", {}),
        (b"{}", {}),
        (b"a=" + b"1" * MAX_LINE, {}),
        (b"{'a': 1}.__class__", {}),
        (b"{'a': __import__('os')}", {}),
    ],
)
def test_numbers_are_read_from_lines_of_values_alone(line: bytes, values: dict[str, float]) -> None:
    assert values_of(line) == values


def test_the_newest_value_of_each_name_is_kept_and_names_are_few() -> None:
    lines = [b"loss=3", b"text", b"acc=0.5 loss=2"]
    assert last_values(lines) == {"loss": 2.0, "acc": 0.5}
    assert len(last_values(f"n{i}=1".encode() for i in range(1000))) == 64
