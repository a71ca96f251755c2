"""A proposal states the amount that an order says in relation to what a job has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.units import parse_begin
from tests.integration.deck import python
from tests.support import eventually

WAIT_S = 30.0
FULL = "torch.OutOfMemoryError: CUDA out of memory."


@pytest.fixture
def deck(shared: Client) -> Iterator[Client]:
    """Provide a client once the device's memory is known; cancel all jobs at the end."""
    eventually(lambda: shared.snapshot().devices[0].reading)
    yield shared
    for job in shared.jobs(active=True):
        shared.cancel(job.id)
        shared.wait(job.id, WAIT_S)


def order(verb: str, job: Job, **changes: str) -> Order:
    return Order(verb, jobs=(job.id,), changes=changes)


def ended(deck: Client, code: str, **options: object) -> Job:
    return deck.wait(deck.submit(python(code), **options).id, WAIT_S)  # type: ignore[arg-type]


def test_a_retry_has_the_memory_that_the_job_had_times_a_factor(deck: Client) -> None:
    job = ended(deck, "1", memory="64MiB", gpus=1)
    action = plan_action(ToolContext(deck), order("retry", job, memory="x2"))
    assert action.order is not None and action.order.options == {"memory": "128mib"}
    assert "128 MiB reserved on each device" in action.effect
    action.carry_out(deck, {})
    assert max(deck.jobs(1), key=lambda one: one.id).spec.memory == 128 * 2**20


def test_more_is_what_the_failure_of_a_job_needs(deck: Client) -> None:
    late = ended(deck, "import time; time.sleep(60)", timeout=1)
    action = plan_action(ToolContext(deck), order("retry", late, timeout="more"))
    assert action.order is not None and action.order.options == {"timeout": "2s"}
    full = ended(deck, f"print({FULL!r}); raise SystemExit(1)", gpus=1)
    with pytest.raises(UserError, match="the job had the GPU to itself: make its batches smaller"):
        plan_action(ToolContext(deck), order("retry", full, memory="more"))


@pytest.mark.parametrize(
    ("changes", "asked"),
    [({"memory": "more"}, "say how much memory on each GPU it shall have"),
     ({"memory": "x2"}, "say how much memory on each GPU it shall have"),
     ({"timeout": "+4h"}, "say how long it may run"),
     ({"gpus": "more"}, "say how many GPUs it shall have")],
)  # fmt: skip
def test_an_amount_that_nothing_says_is_asked_for(
    deck: Client, changes: dict[str, str], asked: str
) -> None:
    job = ended(deck, "1")
    with pytest.raises(UserError, match=asked):
        plan_action(ToolContext(deck), order("retry", job, **changes))


def test_a_time_limit_and_a_begin_are_changed_by_a_length(deck: Client) -> None:
    job = deck.submit(["true"], timeout="8h", begin="+2h")
    changed = order("edit", job, timeout="+4h", begin="+30min")
    action = plan_action(ToolContext(deck), changed)
    assert "Time limit: 12 h for each attempt" in action.effect
    action.carry_out(deck, {})
    after = deck.job(job.id).spec
    assert after.timeout == 12 * 3600.0
    assert after.begin == parse_begin(f"+{30 * 60}s", job.spec.begin) // 60 * 60
    shorter = plan_action(ToolContext(deck), order("edit", job, timeout="-3h"))
    assert shorter.order is not None and shorter.order.options == {"timeout": "9h"}
    with pytest.raises(UserError, match="say how long it may run"):
        plan_action(ToolContext(deck), order("edit", job, timeout="-13h"))


def test_a_tag_is_added_to_those_of_the_job(deck: Client) -> None:
    job = deck.submit(["true"], tags=("old",), begin="+2h")
    plan_action(ToolContext(deck), order("edit", job, tags="+new")).carry_out(deck, {})
    assert deck.job(job.id).spec.tags == ("old", "new")


def test_amounts_of_several_jobs_are_changed_together_only_if_all_get_the_same(
    deck: Client,
) -> None:
    one, same, other = (ended(deck, "1", timeout=seconds) for seconds in (60, 60, 90))
    alike = Order("retry", jobs=(one.id, same.id), changes={"timeout": "x2"})
    planned = plan_action(ToolContext(deck), alike).order
    assert planned is not None and planned.options == {"timeout": "2min"}
    different = Order("retry", jobs=(one.id, other.id), changes={"timeout": "x2"})
    with pytest.raises(UserError, match="one at a time"):
        plan_action(ToolContext(deck), different)
