"""Each figure of a shown text leads to the fact that it is from: the right one, where several
say the same."""

from __future__ import annotations

from gpudeck.app.widgets.citations import citations, tooltip

FACTS = (
    ("GPU 0 temperature: 71 °C", "71 °C", "NVML readings, 18:03:20"),
    ("GPU 1 temperature: 71 °C", "71 °C", "NVML readings, 18:03:20"),
    ("Job 7 took: 1 min 5 s", "1 min 5 s", "queue, 18:03:20"),
    ("Job 7 reason: it exited with status 3\\_x", "it exited with status 3\\_x", "queue, 18:03:20"),
    ("Job 7 state: failed", "failed", "queue, 18:03:20"),
    ("Job 7 rate: 612 TFLOP/s", "612 TFLOP/s", "the job's Result, 18:03:20"),
    ("Jobs failed: 7", "7", "queue, 18:03:20"),
    ("GPU 0 power: N/A (no 9 sensor)", "N/A (no 9 sensor)", "NVML readings, 18:03:20"),
)


def cited(text: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(text[c.start : c.end], c.facts) for c in citations(text, FACTS)]


def test_a_figure_leads_to_its_fact_by_the_subject_named_before_it() -> None:
    assert cited("GPU 0: now 71 °C.") == [("71 °C", (0,))]
    assert cited("GPU 1: now 71 °C.") == [("71 °C", (1,))]
    assert cited("Both are at 71 °C.") == [("71 °C", (0, 1))]


def test_the_longest_value_counts_and_names_are_no_figures() -> None:
    text = (
        "Job 7 failed: it exited with status 3_x. It took 1 min 5 s, at 612 TFLOP/\u2060s; 7"
        " failed."
    )
    assert cited(text) == [
        ("it exited with status 3_x", (3,)),
        ("1 min 5 s", (2,)),
        ("612 TFLOP/\u2060s", (5,)),
        ("7", (6,)),
    ]


def test_parts_of_other_figures_are_none() -> None:
    assert cited("71 °Cx, 171 °C, 7.5, 0.7, x7, Job 7") == []
    assert citations("71 °C", ()) == []


def test_the_tooltip_names_fact_and_source() -> None:
    (found,) = citations("Both are at 71 °C.", FACTS)
    assert tooltip(found, FACTS) == "\n".join(f"{text} ({source})" for text, _, source in FACTS[:2])
