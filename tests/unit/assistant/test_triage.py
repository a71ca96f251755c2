"""What may help a job that failed, as an order."""

from __future__ import annotations

import pytest

from gpudeck.assistant.language.remedies import remedy
from gpudeck.assistant.tools.triage import helpful_order
from gpudeck.language.words import words
from gpudeck.scheduler.protocol.failures import KINDS
from gpudeck.scheduler.protocol.jobs import Failed, Job, Spec


def _failed(**options: object) -> Job:
    spec = Spec(("train",), "train", "/", **options)  # type: ignore[arg-type]
    return Job(7, spec, 0.0, Failed(0.0, 1.0, "exit status 1"))


@pytest.mark.parametrize(
    ("cause", "options", "wanted"),
    [
        ("memory", {"host_memory": 2**30}, {"host_memory": "2048MiB"}),
        ("killed", {"host_memory": 2**30}, {"host_memory": "2048MiB"}),
        ("memory", {}, None),
        ("time limit", {"timeout": 3600.0}, {"timeout": "7200"}),
        ("lost", {}, {}),
        ("driver", {}, {}),
        ("import", {}, None),
        ("nan", {}, None),
        ("", {}, None),
    ],
)
def test_an_order_helps_only_where_nothing_else_must_change(
    cause: str, options: dict[str, object], wanted: dict[str, str] | None
) -> None:
    order = helpful_order(_failed(**options), cause)
    assert (order.options if order is not None else None) == wanted
    assert order is None or (order.verb, order.jobs) == ("retry", (7,))


@pytest.mark.parametrize("cause", [*KINDS, "time limit", "lost", ""])
def test_every_cause_has_a_remedy(cause: str) -> None:
    assert remedy(cause, words("en"))
