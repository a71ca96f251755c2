"""Show that the view from the outside finds what must not happen, and nothing where all is well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.torture.outside.campaign import Campaign
from tests.integration.torture.outside.faults import inject
from tests.integration.torture.outside.plan import Fault, Round, families, rounds
from tests.integration.torture.outside.verdict import (
    AGAIN,
    CRASH,
    DOUBLED,
    DOWN,
    FALSE,
    LEFT,
    LOOP,
    LOST,
    Acknowledged,
    Evidence,
    LedgerLine,
    Listed,
    vanished,
    violations,
)
from tests.integration.torture.outside.world import World

DEFECTS = Path(__file__).parent / "sabotage" / "defects"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a world without a disk of its own, in which no process survives the test."""
    made = World(tmp_path / "world", apart=False, disk=False)
    yield made
    made.close()


@pytest.mark.slow
def test_the_outside_finds_jobs_that_a_defective_daemon_runs_twice_forgets_or_repeats(
    world: World,
) -> None:
    world.env["PYTHONPATH"] = os.pathsep.join([str(DEFECTS), *sys.path])
    campaign = Campaign(world)
    planned = Round(
        Fault("signal", "kill daemon", 0.0), (("quick",), ("slow",), ("hopeless",)), 1.0
    )
    found = violations(campaign.run([planned], 1, inject))
    campaign.close()
    assert {(what, line.split("(")[1].split(",")[0]) for what, line in found} == {
        (DOUBLED, "quick"),
        (LOST, "slow"),
        (LOOP, "hopeless"),
    }


@pytest.mark.slow
def test_faults_of_every_kind_break_nothing_that_can_be_seen_from_the_outside(
    world: World,
) -> None:
    kinds = families(disk=False)
    campaign = Campaign(world)
    evidence = campaign.run(rounds(4, kinds), sum(map(len, kinds.values())), inject)
    campaign.close()
    assert violations(evidence) == []
    assert campaign.struck.total() >= 30
    assert len(evidence.acknowledged) >= 60


def test_a_seed_plans_the_same_faults_and_all_kinds_of_them() -> None:
    kinds = families(disk=True)
    count = sum(map(len, kinds.values()))
    assert rounds(1, kinds) == rounds(1, kinds) != rounds(2, kinds)
    assert len({planned.fault[:2] for planned in rounds(1, kinds)[:count]}) == count


BEGUN, ENDED = LedgerLine("a.", 1), LedgerLine("a.", 1, 0)
GOOD = Evidence(
    acknowledged={"a.": Acknowledged(1, "quick"), "b.": Acknowledged(2, "flaky", 2)},
    unclear={"c.": 1, "d.": 1},
    listed={"a.": [Listed(1, "done")], "b.": [Listed(2, "done")], "c.": [Listed(3, "done")]},
    ledger=[
        *(BEGUN, ENDED),
        *(LedgerLine("b.", 1), LedgerLine("b.", 1, 1), LedgerLine("b.", 2), LedgerLine("b.", 2, 0)),
        *(LedgerLine("c.", 1), LedgerLine("c.", 1, 0)),
    ],
)


def listed(status: str, why: str = "") -> dict[str, list[Listed]]:
    return {**GOOD.listed, "a.": [Listed(1, status, why)]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"listed": {"b.": GOOD.listed["b."]}}, [LOST]),
        ({"listed": listed("queued", "starts now"), "ledger": GOOD.ledger[2:]}, [LOST]),
        ({"listed": listed("queued", "its runner ended")}, [LOOP]),
        ({"listed": listed("running"), "ledger": GOOD.ledger[2:]}, [LOOP]),
        ({"ledger": [*GOOD.ledger, BEGUN]}, [DOUBLED, DOUBLED]),
        ({"ledger": [*GOOD.ledger, LedgerLine("a.", 2)]}, [DOUBLED]),
        ({"ledger": [*GOOD.ledger, LedgerLine("b.", 3)]}, [LOOP]),
        ({"ledger": [*GOOD.ledger, BEGUN], "damaged": {"a."}}, [AGAIN, AGAIN]),
        ({"ledger": [*GOOD.ledger, LedgerLine("c.", 2)]}, [DOUBLED]),
        ({"ledger": [*GOOD.ledger, LedgerLine("stranger.", 1)]}, [DOUBLED]),
        ({"listed": {**GOOD.listed, "c.": [Listed(3, "done"), Listed(4, "done")]}}, [DOUBLED]),
        ({"ledger": GOOD.ledger[2:]}, [FALSE]),
        ({"ledger": [BEGUN, LedgerLine("a.", 1, 3), *GOOD.ledger[2:]]}, [FALSE]),
        ({"listed": listed("lost", "its runner was killed")}, [FALSE]),
        ({"listed": listed("lost"), "excused": {"a."}}, []),
        ({"listed": listed("running"), "excused": {"a."}}, [LOOP]),
        ({"ledger": [BEGUN, *GOOD.ledger[2:]], "excused": {"a."}}, [FALSE]),
        ({"listed": listed("failed"), "ledger": GOOD.ledger[2:], "excused": {"a."}}, []),
        ({"listed": {"b.": GOOD.listed["b."]}, "at_risk": {"a."}}, []),
        ({"down": ["after a full disk"]}, [DOWN]),
        ({"left": ["12: sleep"]}, [LEFT]),
        ({"crashes": ["Traceback"]}, [CRASH]),
    ],
)
def test_the_verdict_finds_each_violation(change: dict[str, object], found: list[str]) -> None:
    assert [what for what, _ in violations(GOOD._replace(**change))] == found  # type: ignore[arg-type]


def test_a_job_that_went_with_a_damaged_store_is_counted() -> None:
    gone = GOOD._replace(listed={"b.": GOOD.listed["b."]}, at_risk={"a.", "b."})
    assert vanished(gone) == ["a."]
