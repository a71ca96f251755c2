"""The tables of figures in the documents are those of the measured rows."""

import pytest

from tests.benchmarks.comparisons import rows
from tests.benchmarks.figures import DOCUMENTS, GROUPS, ROOT, WHOLE, filled, table


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_hold_what_was_measured(document):
    text = (ROOT / document).read_text()
    assert "<!-- figures " in text
    assert text == filled(text), "run: python -m tests.benchmarks.figures"


def test_a_mean_stands_beside_its_worst_shape():
    for line in table([name + WHOLE for name in GROUPS]).splitlines()[2:]:
        _, what, peers, shapes, forward, *_ = (cell.strip() for cell in line.split("|"))
        assert what and peers
        assert shapes in ("0", "1") or shapes.startswith("1,") or " to " in forward


def test_the_manual_counts_as_the_rows_do():
    text = " ".join((ROOT / "docs/manual/attention.md").read_text().split())
    ran = [
        row["direction"]
        for row in rows("attention_grid")
        if (row["contender"], row["backend"]) == ("auto", "fa4")
    ]
    forward, backward = ran.count("forward"), ran.count("backward")
    assert f"ran flash-attn-4 in {forward} of 24 cases forward and in {backward} backward" in text
    slowest = min(
        (float(row["speed_beside_best_peer"]), row["model"])
        for row in rows("attention_decoding")
        if (row["implementation"], row["cache"]) == ("ours", "bf16")
    )
    assert f"({slowest[1]}, {slowest[0]:.2f} of cuDNN)" in text
