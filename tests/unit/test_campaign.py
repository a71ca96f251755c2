"""The campaign on a GPU: what begins when, and real processes that end, fail, hang or are left
for the next run."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.gpu import campaign
from tests.gpu.campaign import Campaign
from tests.gpu.plan import Running, Step, held_up, next_start, remaining
from tests.gpu.steps import STEPS
from tests.support import eventually, lives

A, B = (Step(name, "", (), 100, "gpu") for name in "AB")
HALF, LIGHT = Step("half", "", (), 50, "half"), Step("light", "", (), 50)
WHOLE = Step("whole", "", (), 100, "machine")


def runs(*steps: Step, gpu: int = 0, ends: float = 60.0) -> list[Running]:
    return [Running(step, gpu, ends) for step in steps]


@pytest.mark.parametrize(
    ("todo", "running", "gpus", "end", "begins"),
    [
        ([A, B], [], 1, 1000, (A, 0)),
        ([B], runs(A), 1, 1000, None),
        ([B], runs(A), 2, 1000, (B, 1)),
        ([A, LIGHT], [], 1, 99, (LIGHT, 0)),
        ([LIGHT], runs(A), 1, 1000, None),
        ([LIGHT], runs(HALF, LIGHT), 2, 1000, (LIGHT, 0)),
        ([HALF], runs(HALF, LIGHT), 2, 1000, (HALF, 1)),
        ([WHOLE], [], 2, 1000, (WHOLE, 0)),
        ([A], runs(WHOLE), 2, 1000, None),
        ([WHOLE, A], runs(LIGHT), 2, 1000, None),
        ([WHOLE, LIGHT], runs(HALF), 1, 1000, (LIGHT, 0)),
        ([WHOLE, A], runs(LIGHT), 2, 150, (A, 1)),
    ],
    ids=[
        "in their order", "no room", "another GPU", "what fits into the time", "its own is its own", "the fullest that has room",  # noqa: E501
        "no room for a half", "an empty machine", "alone is alone", "nothing overtakes who waits for an empty machine",  # noqa: E501
        "but what ends before it could begin", "who waits in vain holds nobody up",
    ],
)  # fmt: skip
def test_what_begins(todo, running, gpus, end, begins):
    assert next_start(todo, running, gpus, 0.0, end) == begins


def test_what_is_left_to_do():
    samples = Step("samples", "", (), 1, makes="data")
    train = Step("train", "", (), 1, after=("samples",))
    steps = [A, B, samples, train]
    assert remaining(steps, {"A": "cut off", "B": "failed"}) == [samples, train, A]
    assert remaining(steps, {"samples": "passed"}) == [A, B, train]
    assert remaining(steps, {"samples": "passed"}, ["data"]) == steps
    assert remaining(steps, {"samples": "passed", "train": "passed"}, ["data"]) == [A, B]
    assert held_up(train, {"samples": "failed"}) == "samples failed"
    assert held_up(train, {}) == "samples has not run"
    assert not held_up(train, {"samples": "passed"})


def test_the_steps_hold_together():
    """Names are folders, what one waits for is there and comes before it, and each may end
    within a call of ten minutes."""
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    for i, step in enumerate(STEPS):
        assert set(step.after) <= set(names[:i])
        assert step.seconds <= 480
        assert step.name.replace("-", "").isalnum()
        if step.argv[1].startswith("tests."):
            assert (
                Path(*step.argv[1].split(".")).with_suffix(".py").exists()
                or Path(*step.argv[1].split("."), "__main__.py").exists()
            )


def test_every_file_of_gpu_tests_is_in_a_step() -> None:
    run = {argument for step in STEPS for argument in step.argv}
    assert {f"tests/gpu/{file.name}" for file in Path("tests/gpu").glob("test_*.py")} <= run


OWN = sorted({step.argv[1] for step in STEPS if step.argv[1].startswith(("tests.", "assistant."))})


@pytest.mark.slow
@pytest.mark.parametrize("module", OWN)
def test_every_step_is_given_arguments_that_there_are(module):
    told = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True
    ).stdout
    given = {
        argument
        for step in STEPS
        if step.argv[1] == module
        for argument in step.argv
        if argument.startswith("--")
    }
    assert all(argument in told for argument in given)


def python(name: str, code: str, seconds: float = 30.0, **more) -> Step:
    return Step(name, "", ("-c", code), seconds, **more)


IGNORES = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True);"
    " time.sleep(60)"
)
LEAVES = (
    "import subprocess, sys; p = subprocess.Popen(['sleep', '60'], start_new_session=True);"
    " print(p.pid)"
)


def test_steps_pass_fail_hang_and_leave_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "GRACE_S", 0.5)
    steps = [
        python("good", "print('fine')"),
        python("bad", "raise SystemExit('it is wrong')"),
        python("deaf", IGNORES, seconds=1.0),
        python("leaves", LEAVES),
        python("sees", "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", room="gpu"),
        python("after", "print('never')", after=("bad",)),
        python("lacks", "print('never')", needs=("no_such_package",)),
        python("long", "print('never')", seconds=1e4),
    ]
    run = Campaign(steps, tmp_path / "work", tmp_path / "out", ["4", "7"])
    assert not run.run(120)
    states = {
        "good": "passed",
        "bad": "failed",
        "deaf": "cut off",
        "leaves": "passed",
        "sees": "passed",
    }
    assert run.states == states
    assert not lives(int(str(run.notes["leaves"]["said"])))
    assert run.notes["sees"]["said"] in ("4", "7")
    told = {
        line.split()[0]: line
        for line in (tmp_path / "out" / "verdicts.txt").read_text().split("----")[0].splitlines()
    }
    assert "fine" in told["good"] and "it is wrong" in told["bad"]
    assert (
        "bad failed" in told["after"]
        and "needs no_such_package" in told["lacks"]
        and "takes about 10000 s" in told["long"]
    )
    parts = sorted((tmp_path / "out").glob("campaign.tar.gz.*"))
    (tmp_path / "whole").write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(tmp_path / "whole") as archive:
        assert {"bad/log.txt", "states.json"} <= set(archive.getnames())
    assert "deaf" in capsys.readouterr().out, "what runs is shown"


def test_what_needs_more_gpus_than_there_are_is_named_and_no_failure(tmp_path):
    steps = [python("one", "print('fine')"), python("two", "print('never')", gpus=2)]
    run = Campaign(steps, tmp_path / "work", tmp_path / "out", ["0"])
    assert run.run(60)
    assert run.states == {"one": "passed"}
    assert "not run" in run.verdicts() and "needs 2 GPUs" in run.verdicts()


def test_the_tests_are_what_judges() -> None:
    judges = {step.name for step in STEPS if not step.figure}
    assert {step.name for step in STEPS if step.name.startswith("tests-")} < judges
    assert {"memcheck", "racecheck", "cudnn", "nvml-truth", "energy-truth"} < judges
    assert not judges & {"grid", "zoo", "tour", "rwkv-tiles"}


def test_it_goes_on_from_what_was_carried_away(tmp_path, monkeypatch):
    """In parts, on another machine: what is done is not done again, and its files are there for
    later steps."""
    monkeypatch.setattr(campaign, "PART_BYTES", 300)
    out = tmp_path / "out"
    steps = [
        python(
            "first", "import pathlib; pathlib.Path('{work}/made').write_text('7'); print('once')"
        ),
        python("second", "print(open('{work}/made').read())", seconds=500.0, after=("first",)),
    ]
    assert not Campaign(steps, tmp_path / "here", out, ["0"]).run(100)
    assert len(list(out.glob("campaign.tar.gz.*"))) > 1
    again = Campaign(steps, tmp_path / "there", out, ["0"])
    assert again.states == {"first": "passed"}
    assert again.run(600)
    assert again.notes["second"]["said"] == "7"
    assert (tmp_path / "there" / "first" / "log.txt").read_text().count("\nonce") == 1


CAMPAIGN = """
import signal, sys
from pathlib import Path
from tests.gpu.campaign import Campaign
from tests.gpu.plan import Step
signal.signal(signal.SIGTERM, signal.default_int_handler)
step = Step("slow", "", ("-c", sys.argv[2]), 60)
Campaign([step], Path(sys.argv[1]) / "work", Path(sys.argv[1]) / "out", ["0"]).run(300)
"""
SLOW = """
import time
from pathlib import Path
try:
    print("begun", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    Path("{out}/rows.csv").write_text("what there is")
    raise
"""


def test_a_terminated_campaign_keeps_the_results_of_its_steps(tmp_path):
    run = subprocess.Popen(
        [sys.executable, "-c", CAMPAIGN, str(tmp_path), SLOW], stdout=subprocess.DEVNULL
    )
    log = tmp_path / "work" / "slow" / "log.txt"
    eventually(lambda: log.exists() and "begun" in log.read_text().splitlines())
    run.send_signal(signal.SIGTERM)
    run.wait(30)
    assert "cut off" in (tmp_path / "out" / "verdicts.txt").read_text()
    with tarfile.open(tmp_path / "out" / "campaign.tar.gz.0") as archive:
        assert "slow/rows.csv" in archive.getnames()
