"""Test exit statuses, and the one line that reports an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudeck.app.cli.catalog import COMMANDS
from gpudeck.app.cli.main import ELSEWHERE
from gpudeck.scheduler.client import Client
from tests.integration.shell import Shell, gpudeck


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "nope"], "validate, tune, gemm, precision, linear_attention, distributed, search"),
        (["run", "sleep", "10"], "To queue a command of your own: gpudeck submit -- sleep 10"),
        (["run", "python", "x.py", "--lr", "1"], "gpudeck submit -- python x.py --lr 1"),
        (["run", "python", "-c", "a b", "c"], "gpudeck submit -- python -c 'a b' c"),
        (["run", "attention", "--nope", "1"], "unknown argument: --nope 1"),
        (["run", "--nope", "1"], "unknown argument: --nope"),
        (["run", "attention", "nope=1"], "nope"),
        (["run", "attention", "seq"], "NAME=VALUE"),
        (["run", "attention", "seq=many"], "seq is a whole number"),
        (["run", "attention", "seq=0"], "seq"),
        (["run", "attention", "dtype=int3"], "dtype is one of"),
        (["run", "attention", "causal=maybe"], "causal is one of no, yes, both"),
        (["run", "attention", "seconds=nan"], "seconds"),
        (["submit"], "missing command"),
        (["cluster", "add", "foo:lab", "http://head:8265"], "ray:NAME or slurm:NAME"),
        (["cluster", "add", "ray:lab", "head:8265"], "begins with http://"),
    ],
)
def test_wrong_values_exit_with_2_and_one_line(sh: Shell, words: list[str], named: str) -> None:
    assert named in sh.fails(*words, status=2)


def test_a_slurm_cluster_needs_the_commands_of_slurm(
    sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch, squeue, scancel cannot be found" in sh.fails("cluster", "add", "slurm:hpc")
    assert "No clusters" in sh("cluster")
    for name in ("sbatch", "squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert "gpudeck submit --on slurm:hpc" in sh("cluster", "add", "slurm:hpc")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nope"], "nope"),
        (["jobs", "--limit", "many"], "many"),
        (["jobs", "--limit", "-1"], "-1"),
        (["jobs", "--limit", "0"], "1 or more"),
        (["wait", "first"], "first"),
        (["wait", "\u00b2"], "\u00b2"),
        (["cancel"], "JOB"),
        (["cancel", "3", "--group", "g"], "name one of"),
        (["cancel", "--group", ""], "--group NAME"),
        (["cancel", "9-2"], "write the range upwards, as 2-9"),
        (["cancel", "1-2-3"], "such as 9-200"),
        (["submit", "--gpus", "x", "--", "true"], "x"),
        (["submit", "--memory", "5KiB", "--", "true"], "less than 1 MiB"),
        (["submit", "--priority", "x", "--", "true"], "expected a whole number; got"),
        (["logs"], "required: JOB. "),
        (["daemon"], "required: start|stop|status|install|uninstall|run. "),
        (["daemon", "dance"], "dance"),
        (["record", "file", "--seconds", "0"], "0"),
        (["status", "--nope"], "--nope"),
    ],
)
def test_parse_errors_exit_with_2_and_name_the_argument(
    sh: Shell, words: list[str], named: str
) -> None:
    said = sh.fails(*words, status=2)
    assert named in said and said.rstrip().endswith("--help") and len(said) < 200


@pytest.mark.parametrize("number", ["999999", "0", "99999999999999999999999"])
@pytest.mark.parametrize("verb", ["wait", "cancel", "logs", "results"])
def test_unknown_jobs_exit_with_1_and_one_line(sh: Shell, verb: str, number: str) -> None:
    assert f"there is no job {number}. See: gpudeck jobs" in sh.fails(verb, number)


def test_impossible_requests_exit_with_1_and_one_line(sh: Shell) -> None:
    assert "2 GPUs" in sh.fails("submit", "--gpus", "2", "--", "true")
    number = str(sh.json("submit", "--wait", "--", "true")["id"])
    assert "has ended already: done" in sh.fails("cancel", number)


def test_exit_status_of_the_process_is_that_of_the_command(shared: Client, tmp_path: Path) -> None:
    assert gpudeck("submit", "--wait", "--", "true").returncode == 0
    assert gpudeck("submit", "--wait", "--", "false").returncode == 1
    wrong = gpudeck("run", "nope")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    blocked = gpudeck("status", env={**os.environ, "GPUDECK_HOME": "/proc/nowhere"})
    assert (blocked.returncode, blocked.stdout, blocked.stderr.count("\n")) == (1, "", 1)
    assert "GPUDECK_HOME" in blocked.stderr
    assert gpudeck("--version").stdout.startswith("gpudeck ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("logs", "1", "2"),
            "this command takes one number; 2 is too many. See: gpudeck logs --help",
        ),
        (("sumbit",), "there is no command 'sumbit'. Did you mean submit? See: gpudeck --help"),
        (("show",), "there is no command 'show'. Did you mean jobs? See: gpudeck --help"),
        (("wait", "1", "--quick"), "unknown argument: --quick. See: gpudeck wait --help"),
        (("jobs", "--state", "failed"), "unknown argument: --state. See: gpudeck jobs --help"),
        (
            ("daemon", "restart"),
            "'restart' is none of start, stop, status, install, uninstall, run.",
        ),
        (("query", "gpus"), "argument SUBJECT: 'gpus' is none of devices, jobs, processes, alerts"),
        (("submit", "--array", "5-2", "true"), "indices go upwards, as in 2-5; got '5-2'"),
        (
            ("report", "--format", "html", "--out", "x.md"),
            "--format html and --out x.md name two formats",
        ),
    ],
)
def test_usage_errors_explain_what_to_do(alone: Shell, words: tuple[str, ...], says: str) -> None:
    assert says in alone.fails(*words, status=2)


def test_names_of_other_queues_lead_to_commands_that_there_are() -> None:
    names = {command.name for command in COMMANDS}
    assert set(ELSEWHERE.values()) <= names
    assert not names & set(ELSEWHERE)
