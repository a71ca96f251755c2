"""`gpudeck runs` and `gpudeck curves` with jobs that print values and write event files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from tests.integration.deck import python
from tests.integration.shell import Shell

WAIT_S = 60.0
TRAIN = (
    "import json, sys\n"
    "lr = float(sys.argv[sys.argv.index('--lr') + 1])\n"
    "for i in range(20): print(json.dumps({'step': 10 * i, 'loss': lr + 4 / (i + 1)}))\n"
    "print('acc=%g' % (1 - lr))\n"
)
LOGS = (
    "import os, pathlib, shutil, sys, time\n"
    "folder = pathlib.Path('runs/one'); folder.mkdir(parents=True)\n"
    "shutil.copy(sys.argv[1], folder / f'events.out.tfevents.{int(time.time())}.vm.1.0')\n"
)
RECORDED = Path(__file__).parent / "data/events.out.tfevents.1795601625.vm.30551.0"


@pytest.fixture
def sweep(shared: Client) -> list[int]:
    rates = ("0.3", "0.1", "0.2")
    made = [
        shared.submit([*python(TRAIN), "--lr", lr], name="sweep", group="sweep") for lr in rates
    ]
    return [shared.wait(job.id, WAIT_S).id for job in made]


def test_a_sweep_is_a_table_sorted_by_any_value(sh: Shell, sweep: list[int]) -> None:
    found = sh.json("runs", "--group", "sweep", "--sort", "loss", "--limit", "3")
    assert [row["parameters"]["lr"] for row in found] == ["0.1", "0.2", "0.3"]
    assert found[0]["values"]["loss"] == pytest.approx(0.1 + 4 / 20)
    highest = sh.json("runs", "--group", "sweep", "--sort", "acc", "--descending", "--limit", "3")
    assert [row["job"] for row in highest] == [row["job"] for row in found]
    table = sh("runs", "--group", "sweep", "--sort", "loss", "--limit", "3").splitlines()
    assert table[0].split() == ["JOB", "NAME", "STATE", "TIME", "lr", "loss", "step", "acc"]
    assert [line.split()[0] for line in table[1:]] == [str(row["job"]) for row in found]
    assert "no run has a value 'nope'" in sh.fails("runs", "--sort", "nope", status=2)
    assert sh("runs", "--search", "nothing-has-this") == (
        "No job that matches left values. See the manual page Training.\n"
    )


def test_runs_are_drawn_on_one_scale(sh: Shell, sweep: list[int], tmp_path: Path) -> None:
    words = [str(number) for number in sweep]
    found = sh.json("curves", *words)
    assert [run["job"] for run in found] == sweep
    assert found[0]["curves"]["loss"]["steps"] == [10.0 * i for i in range(20)]
    table = sh("curves", *words, "--value", "loss").splitlines()
    assert len(table) == 4
    assert "█" in table[1], "the highest value of all is the first of lr 0.3"
    assert table[2].split()[3].startswith("▇") or table[2].split()[3].startswith("█")
    file = tmp_path / "curves.csv"
    sh("curves", *words, "--value", "loss", "--out", str(file))
    lines = file.read_text().splitlines()
    assert lines[:2] == ["job,name,value,step,number", f"{sweep[0]},sweep,loss,0.0,4.3"]
    assert len(lines) == 1 + 3 * 20
    assert "There are: loss" in sh.fails("curves", words[0], "--value", "nope")


def test_a_verdict_is_given_on_any_job(sh: Shell, sweep: list[int]) -> None:
    assert sh.json("verdict", str(sweep[0])) == []
    assert sh("verdict", str(sweep[0])) == "Nothing stands out in the readings of this job.\n"
    assert "no job 999999" in sh.fails("verdict", "999999")


def test_event_files_of_a_job_are_read(sh: Shell, shared: Client, tmp_path: Path) -> None:
    job = shared.submit(python(LOGS, RECORDED), cwd=str(tmp_path))
    shared.wait(job.id, WAIT_S)
    (found,) = sh.json("curves", str(job.id))
    assert found["curves"]["train/loss"]["steps"] == [5.0 * i for i in range(10)]
    other = shared.wait(shared.submit(["true"], cwd=str(tmp_path)).id, WAIT_S)
    assert "wrote no event files" in sh.fails("curves", str(other.id))
