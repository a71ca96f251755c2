"""The judge refuses whoever cheats, and nobody else."""

import dataclasses
from itertools import pairwise

import pytest
import torch

from gpudeck.accel.search import roofline
from gpudeck.accel.search.arena import Arena, lay_out
from gpudeck.accel.search.contender import Desk
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.judge import judge
from gpudeck.accel.search.verdict import Source, decode, encode
from gpudeck.accel.search.worker import load
from tests.unit.accel.search.cheats import CASES, LIBRARY, PROCESS, RESULTS, small

FEW = Effort(seconds=2.0, rounds=60, trials=12)
_NAMES = ("a thread that stays", "replaced within a call", "the memory file of the process")
SAMPLE = [RESULTS[2], PROCESS[0], LIBRARY[4], *CASES[12:60:24], CASES[-9]]
SAMPLE += [case for case in CASES if case.name in _NAMES and case not in SAMPLE]


def verdict(tmp_path, case, text, **more):
    file = tmp_path / "candidate.py"
    file.write_text(text)
    return judge(Source(str(file)), small(case.task, case.own), compiled=(), effort=FEW, **more)


def assert_refused(tmp_path, case):
    found = verdict(tmp_path, case, case.cheat)
    assert not found.accepted, case.name
    kinds = {refusal.kind for refusal in found.refusals}
    assert kinds & case.kinds, (case.name, [str(r.text) for r in found.refusals])
    assert not found.is_faster


def assert_accepted(tmp_path, case):
    found = verdict(tmp_path, case, case.twin)
    assert found.accepted, (case.name, [str(r.text) for r in found.refusals], found.seed)
    assert found.race is not None


_CANCELS = """
import torch
def reference(x):
    return ((x + 1e5) - 1e5).clamp(min=5.0)
def candidate(x):
    return ((x - 1e5) + 1e5).clamp(min=5.0)
"""


def test_values_that_are_harder_when_timed_than_in_the_trials_refuse_nobody(tmp_path):
    file = tmp_path / "cancels.py"
    file.write_text(_CANCELS)
    source = Source(str(file), "reference")
    task = dataclasses.replace(
        small("gelu", own=False), reference=load(source), written=source, alternatives={},
        draws=("normal",),
    )  # fmt: skip
    found = judge(Source(str(file)), task, compiled=(), effort=FEW, seed=3)
    assert all(trial.error == 0 for trial in found.trials), "nothing lies above 5 there"
    assert found.accepted, [str(r.text) for r in found.refusals]


def test_some_inputs_differ_from_those_of_the_call_before_in_one_element():
    """Whoever recognises inputs by a few of their values takes them for the same."""
    task, calls, cpu = small("softmax"), 40, torch.device("cpu")
    random = torch.Generator().manual_seed(3)
    desk = Desk(Arena.create(lay_out(task, task.timed, calls)[1], cpu), task, cpu)
    desk.lay_out(task.timed, calls)
    desk.stock(random)
    desk.refill(random, calls)
    inputs = [desk.inputs(call)[0] for call in range(calls)]
    assert 1 in {int((now != before).sum()) for before, now in pairwise(inputs)}


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_cheat_is_refused_and_its_twin_is_not(tmp_path, case):
    assert_refused(tmp_path, case)
    assert_accepted(tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_cheat_is_refused(tmp_path, case):
    assert_refused(tmp_path, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_honest_twin_is_refused(tmp_path, case):
    for _ in range(3):
        assert_accepted(tmp_path, case)


def test_there_are_enough_cheats():
    assert len({case.name for case in CASES}) == len(CASES) >= 60
    assert all(case.cheat != case.twin for case in CASES)


def test_a_verdict_is_a_record_from_which_it_can_be_repeated(tmp_path):
    case = RESULTS[0]
    first = verdict(tmp_path, case, case.twin, seed=7)
    assert decode(encode(first)) == first and first.source == case.twin
    again = verdict(tmp_path, case, first.source, seed=first.seed)
    assert again.trials == first.trials and again.digest == first.digest
    other = verdict(tmp_path, case, first.source)
    assert other.seed != first.seed
    assert {t.inputs for t in other.trials}.isdisjoint(t.inputs for t in first.trials)


def test_a_cpu_that_was_busy_while_it_was_measured_refuses_nobody(monkeypatch):
    """Its highest rates count: the first measurement may fall into a busy moment."""
    task = small("gelu")
    slow = iter((1e9, 1e9))
    monkeypatch.setattr(roofline, "_highest", [0.0, 0.0])
    with monkeypatch.context() as busy:
        busy.setattr(roofline, "_fastest", lambda call: next(slow))
        first = roofline.roofline(task, torch.device("cpu"))
    again = roofline.roofline(task, torch.device("cpu"))
    assert again.least_us < 1e-3 * first.least_us
