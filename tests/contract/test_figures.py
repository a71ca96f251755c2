"""The tables of figures in the documents are those of the measured rows."""

import ast
from functools import partial
from statistics import geometric_mean

import pytest

from tests.benchmarks import code_state
from tests.benchmarks.code_state import SOURCES, digest_sources
from tests.benchmarks.comparisons import (
    OURS,
    grid,
    linear,
    over_best,
    own_zoo,
    paged_decoding,
    rows,
    times,
    zoo,
)
from tests.benchmarks.figures import DOCUMENTS, GROUPS, ROOT, WHOLE, filled, table

WAYS = ("forward", "backward")
own_grid = partial(grid, ours=OURS)


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
    learned = [
        (row["direction"], row["ran"] in ("hopper", "triton", "decoding"))
        for row in rows("attention_zoo")
        if row["contender"] == "learned" and row["ratio_to_best_peer"]
    ]
    foreign, all_ = (
        [learned.count((way, False)) + own * learned.count((way, True)) for way in WAYS]
        for own in (0, 1)
    )
    counted = f"{foreign[0]} of {all_[0]} passes forward and in {foreign[1]} of {all_[1]} backward"
    assert f"ran a peer's kernel in {counted}" in text
    flex = [
        (row["direction"], row["ran"])
        for row in rows("attention_flex")
        if row["contender"] == "ours" and row["us"]
    ]
    foreign = [sum(flex.count((way, peer)) for peer in ("fa3", "fa4", "cudnn")) for way in WAYS]
    assert f"in {foreign[0]} of 100 cells forward and in {foreign[1]} of 100 backward" in text
    assert all(ran for _, ran in flex)
    slowest = min(
        (float(row["speed_beside_best_peer"]), row["model"])
        for row in rows("attention_decoding")
        if (row["implementation"], row["cache"]) == ("ours", "bf16")
    )
    assert f"({slowest[1]}, {slowest[0]:.2f} of cuDNN)" in text
    slower = [f"{sum(r < 1 for r in ratios)} of {len(ratios)}" for ratios in map(own_grid, WAYS)]
    assert f"fastest peer in {slower[0]} passes forward and in {slower[1]} backward" in text
    paged = "In pages of 16 it is slower on every shape than the fastest peer" in text
    assert paged == (max(paged_decoding()) < 1)


def test_the_documents_say_what_the_means_of_attention_rest_on():
    """A mean of which a few shapes are the reason stands beside the mean of the others."""
    own, learned = (
        [sorted(compare(way, *of)) for way in WAYS]
        for compare, of in ((own_zoo, ()), (zoo, ("learned",)))
    )
    without = [[f"{geometric_mean(ratios[:-5]):.2f}" for ratios in both] for both in (own, learned)]
    slower = [f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}" for ratios in own]
    manual, readme = (
        " ".join((ROOT / name).read_text().split())
        for name in ("docs/manual/attention.md", "README.md")
    )
    assert (
        f"our own kernels are at {without[0][0]} forward and {without[0][1]} backward, and `auto` "
        f"after measuring is at {without[1][0]} and {without[1][1]}" in manual
    )
    assert f"peer in {slower[0]} passes forward and in {slower[1]} backward" in manual
    assert f"own kernels have {without[0][0]} and {without[0][1]}" in readme
    both = [geometric_mean(linear(way, "gdn", "flashqla")) for way in ("graph", "backward")]
    assert f"FlashQLA's gated delta rule is faster ({both[0]:.2f}, {both[1]:.2f})" in readme


def test_the_manual_names_what_is_slow_beside_linear_attention_of_others():
    manual = " ".join((ROOT / "docs/manual/attention.md").read_text().split())
    replayed, called = (sorted(linear(way, "gdn", "flashqla")) for way in ("graph", "forward"))
    both = [*replayed, *(ratio for ratio in called if ratio < 1)]
    assert f"has {min(both):.2f} to {max(both):.2f} of its speed forward" in manual
    (backward,) = linear("backward", "gdn", "flashqla")
    assert f"Backward it has {backward:.2f} on the one shape that was measured" in manual
    slowest = min(linear("graph", "kda", "cudnn"))
    assert f"four sequences of 4,096 tokens and 64 heads ({slowest:.2f})" in manual


def test_times_of_different_runs_are_never_compared():
    def row(run, contender, us):
        return {"name": "gpt2", "run": run, "contender": contender, "us": us, "date": "2026-11-25"}

    joined = [row("1", "ours", "10"), row("2", "peer", "30")]
    assert over_best(times("us", ("name",), joined), ("ours",), ("peer",)) == []
    whole = [*joined, row("1", "peer", "20"), row("2", "ours", "60"), row("3", "ours", "1")]
    assert over_best(times("us", ("name",), whole), ("ours",), ("peer",)) == [0.5]
    undated = [{**each, "run": "", "date": f"2026-11-2{i}"} for i, each in enumerate(joined)]
    assert over_best(times("us", ("name",), undated), ("ours",), ("peer",)) == []


def test_a_figure_says_when_its_code_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(code_state, "ROOT", tmp_path)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    states = []
    for text in ('"""Add."""\nx = 1 + 1\n', "x = (1 + 1)  # plainly\n", "x = 1 + 2\n"):
        (kernels / "add.py").write_text(text)
        digest_sources.cache_clear()
        states.append(digest_sources("kernels"))
    digest_sources.cache_clear()
    first, comment_changed, code_changed = states
    assert first == comment_changed != code_changed


def test_the_state_of_code_is_the_same_in_later_versions_of_python():
    """These add fields that are empty unless their new syntax is used."""
    assert "[]" not in code_state._outline(ast.parse("def double(x):\n    return 2 * x"))


def test_every_source_of_a_figure_exists():
    for folders in SOURCES.values():
        for folder in folders:
            assert any((ROOT / folder).rglob("*.py")), folder
