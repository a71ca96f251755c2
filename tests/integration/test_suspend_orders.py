"""The assistant suspends jobs, brings them back and frees GPUs, after a person's approval."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools.permissions import refuse
from gpudeck.assistant.tools.proposal_store import ProposalStore
from gpudeck.assistant.tools.registry import plan_action
from gpudeck.assistant.tools.tool import ToolContext
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job, suspension_of
from gpudeck.scheduler.protocol.units import parse_begin
from tests.integration.deck import ready
from tests.integration.suspended_jobs import Machine, goes_on
from tests.integration.test_suspend import gpu
from tests.support import eventually

__all__ = ["gpu"]  # the fixture


@pytest.fixture
def machine(gpu: Path) -> Iterator[Machine]:
    made = Machine(gpu, ready(Client(timeout=60.0)))
    yield made
    made.deck.close()


def carry_out(machine: Machine, order: Order) -> str:
    """Propose an order, approve it, and return what was done."""
    store, context = ProposalStore(), ToolContext(machine.deck)
    proposal = store.add(context, order, plan_action(context, order), certain=False)
    return store.approve(machine.deck, proposal.id, "once", {}).text


def shown_size(machine: Machine, job: Job) -> bool:
    """Report whether the live readings tell that the job holds memory."""
    return any(
        process.job == job.id and process.memory
        for state in machine.deck.snapshot().devices
        if state.reading is not None
        for process in state.reading.processes
    )


def test_a_job_is_suspended_and_brought_back_by_order(machine: Machine) -> None:
    job = machine.train()
    eventually(lambda: shown_size(machine, job))
    order = Order("suspend", jobs=(job.id,))
    action = plan_action(ToolContext(machine.deck), order)
    assert action.title == f"Suspend job {job.id} (sh)"
    assert "64.0 MiB move to the memory of this machine" in action.effect
    assert ("Command", f"gpudeck suspend {job.id}") in action.details
    assert machine.on(job), "nothing is done before a person allows it"
    assert carry_out(machine, order) == f"Suspended: job {job.id}."
    assert machine.off(job)
    with pytest.raises(UserError, match="suspended already"):
        plan_action(ToolContext(machine.deck), order)
    assert "Back as soon as" in carry_out(machine, Order("release", jobs=(job.id,)))
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def test_a_process_is_ended_by_the_gpu_that_it_uses_and_names_itself_on_the_card(
    machine: Machine,
) -> None:
    job, context = machine.train(), ToolContext(machine.deck)
    eventually(lambda: shown_size(machine, job))
    action = plan_action(context, Order("kill", devices=(0,)))
    assert action.order is not None and action.order.number is not None
    assert action.order == Order("kill", number=action.order.number)
    assert action.title.startswith(f"End process {action.order.number} (")
    assert f"Job {job.id}, which it belongs to, is cancelled." in action.effect
    with pytest.raises(NotFound, match="no such process"):
        plan_action(context, Order("kill", devices=(0,), text="quux"))


def test_to_hold_a_running_job_is_to_suspend_it_and_needs_that_permission(machine: Machine) -> None:
    job, context = machine.train(), ToolContext(machine.deck)
    order = Order("hold", jobs=(job.id,))
    proposal = ProposalStore().add(context, order, plan_action(context, order), certain=False)
    assert proposal.tool == "operate suspend"
    refuse(machine.deck, "operate suspend")
    with pytest.raises(UserError, match="never to do this"):
        carry_out(machine, order)
    assert machine.on(job)


def test_a_job_is_held_until_a_time(machine: Machine) -> None:
    job = machine.train()
    until = {"until": "23:59"}
    proposed = plan_action(ToolContext(machine.deck), Order("hold", jobs=(job.id,), options=until))
    assert proposed.order == Order("suspend", jobs=(job.id,), options=until)
    assert "comes back by itself" in proposed.effect
    carry_out(machine, Order("hold", jobs=(job.id,), options=until))
    suspension = suspension_of(machine.deck.job(job.id))
    assert suspension is not None and suspension.resume_at == parse_begin("23:59", suspension.since)
    waiting = machine.deck.submit(["true"], gpus=1, hold=True).job
    planned = plan_action(
        ToolContext(machine.deck), Order("hold", jobs=(waiting.id,), options=until)
    )
    assert planned.order == Order("edit", jobs=(waiting.id,), options={"begin": "23:59"})
    machine.deck.cancel(waiting.id)


def test_a_booking_is_ended_by_order(machine: Machine) -> None:
    context = ToolContext(machine.deck)
    with pytest.raises(UserError, match="no such booking"):
        plan_action(context, Order("unbook"))
    until = {"until": "23:59"}
    before, card = (
        time.strftime("%d %b"),
        plan_action(context, Order("book", number=1, options=until)),
    )
    assert before in card.effect or time.strftime("%d %b") in card.effect  # today has its day, too
    assert "booking 1" in carry_out(machine, Order("book", number=1, options=until))
    with pytest.raises(UserError, match="1 GPUs cannot be booked: 0 of 1"):
        plan_action(context, Order("book", number=1, options=until))
    with pytest.raises(UserError, match="no such booking"):
        plan_action(context, Order("unbook", options={"begin": "2020-01-01"}))
    with pytest.raises(UserError, match="no such booking"):
        plan_action(context, Order("unbook", user=getpass.getuser()))  # it is for nobody's jobs
    assert "kept for work outside of the queue" in plan_action(context, Order("unbook")).effect
    assert carry_out(machine, Order("unbook", devices=(0,))) == "Booking 1 has ended."
    assert not machine.deck.snapshot().settings.reservations


def test_the_job_of_a_user_is_one_and_no_other_is_guessed(machine: Machine) -> None:
    me = getpass.getuser()
    machine.deck.pause()
    first = machine.deck.submit(["true"], gpus=1).job
    order = Order("cancel", user=me)
    assert plan_action(ToolContext(machine.deck), order).jobs == (first.id,)
    second = machine.deck.submit(["true"], gpus=1).job
    with pytest.raises(UserError, match="name the job"):
        plan_action(ToolContext(machine.deck), order)
    every = Order("cancel", user=me, states=("queued",))
    assert plan_action(ToolContext(machine.deck), every).jobs == (first.id, second.id)
    with pytest.raises(UserError, match="name the job"):
        plan_action(ToolContext(machine.deck), Order("cancel", user="nobody-here"))


def test_it_is_the_only_job_that_an_order_can_be_for(machine: Machine) -> None:
    machine.deck.pause()
    waiting = machine.deck.submit(["true"], gpus=1).job
    held = machine.deck.submit(["true"], gpus=1, hold=True).job
    context = ToolContext(machine.deck)
    assert plan_action(context, Order("release")).jobs == (held.id,)
    assert plan_action(context, Order("hold")).jobs == (waiting.id,)
    with pytest.raises(UserError, match=f"name the job.*job {held.id}.*job {waiting.id}"):
        plan_action(context, Order("cancel"))


def test_what_uses_no_gpu_is_not_suspended(machine: Machine) -> None:
    job = machine.deck.submit(["sleep", "1000"]).job
    eventually(lambda: machine.deck.job(job.id).status == "running")
    with pytest.raises(UserError, match="does not use a GPU"):
        plan_action(ToolContext(machine.deck), Order("suspend", jobs=(job.id,)))
    machine.deck.cancel(job.id)


def test_a_gpu_is_freed_by_order_until_the_time_that_is_said(machine: Machine) -> None:
    job = machine.train()
    order = Order("free", devices=(0,), options={"until": "23:59"})
    foretold = plan_action(ToolContext(machine.deck), order).effect
    assert f"Job {job.id} (sh) leaves its GPU" in foretold
    done = carry_out(machine, order)
    assert "booking 1" in done and f"Suspended: job {job.id}." in done
    assert machine.off(job)
    snapshot = machine.deck.snapshot()
    booking = snapshot.settings.reservations["1"]
    assert booking.frees and booking.end == parse_begin("23:59", snapshot.time)
    machine.deck.cancel_booking(1)
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def test_a_job_that_stays_on_a_freed_gpu_is_named_with_the_reason(machine: Machine) -> None:
    job = machine.train()
    machine.write("checkpoint.code", 801)
    done = carry_out(machine, Order("free", devices=(0,)))
    assert f"Job {job.id} runs on: job {job.id} (sh) cannot be suspended" in done
    assert machine.on(job) and goes_on(job)
