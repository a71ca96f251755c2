"""The command line: every verb, what it prints, its exit status, and one clear line where something is wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from scheduler.client import Client
from scheduler.devices import trace
from scheduler.protocol import settings
from scheduler.protocol.jobs import Done, Job
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.integration.shell import Shell
from tests.support import eventually
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf

WAIT_S = 60.0


@pytest.fixture
def sh(capsys: pytest.CaptureFixture[str], shared: Client) -> Shell:
    return Shell(capsys)


@pytest.fixture
def alone(capsys: pytest.CaptureFixture[str], cpu_home: Path) -> Shell:
    """With a state folder of the test's own, and no daemon yet."""
    return Shell(capsys)


def gpudeck(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as a user's shell runs it."""
    return subprocess.run(
        [sys.executable, "-m", "app", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def waits_for(job: Job) -> subprocess.Popen[str]:
    """`gpudeck wait` in a process of its own, once it waits."""
    command = [sys.executable, "-m", "app", "wait", str(job.id)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == f"job {job.id} ({job.spec.name})\n"
    return process


def test_status_shows_the_device_and_says_why_a_figure_is_missing(
    sh: Shell, shared: Client
) -> None:
    out = sh("status")
    assert "CPU: no NVIDIA GPU found" in out
    assert "No jobs are waiting or running." in out
    reading = shared.snapshot().devices[0].reading
    assert reading is not None
    assert "TFLOP/s: N/A" in out
    found = sh.json("status")
    assert found["devices"][0]["device"]["kind"] == "cpu"
    assert found["devices"][0]["reading"]["values"]["mem_total"] == reading.values["mem_total"]


def test_submit_keeps_every_word_of_the_command(sh: Shell, shared: Client, tmp_path: Path) -> None:
    words = python("import sys; print(sys.argv[1:])", "--gpus", "9", "--", "-x", "", "a b")
    out = sh("submit", "--name", "mine", "--cwd", str(tmp_path), "--", *words)
    number = int(out.split()[1])
    assert out.startswith(f"job {number} (mine): ")
    job = shared.wait(number, WAIT_S)
    assert job.spec.argv == tuple(words)
    assert job.spec.cwd == str(tmp_path)
    assert sh("logs", str(number)) == "['--gpus', '9', '--', '-x', '', 'a b']\n"


def test_submit_and_wait_tell_success_from_failure(sh: Shell) -> None:
    assert sh.json("submit", "--", "true")["spec"]["argv"] == ["true"]
    assert "done" in sh("submit", "--wait", "--", "true")
    number = sh.json("submit", "--", "sh", "-c", "echo no data; exit 3")["id"]
    sh("wait", str(number), status=1)
    sh("submit", "--wait", "--", "false", status=1)
    assert sh.json("wait", str(sh.json("submit", "--", "true")["id"]))["state"]["type"] == "done"


def test_jobs_are_searched(sh: Shell, shared: Client) -> None:
    one = shared.wait(
        shared.submit(["false"], name="needle", group="haystack", notes="a long one").id
    )
    other = shared.wait(shared.submit(["true"], name="needle", group="haystack").id)
    assert [j["id"] for j in sh.json("jobs", "--search", "NEEDLE", "--since", "1h")] == [
        other.id,
        one.id,
    ]
    assert [j["id"] for j in sh.json("jobs", "--search", "long needle")] == [one.id]
    assert [
        j["id"]
        for j in sh.json(
            "jobs", "--status", "failed,lost", "--group", "haystack", "--limit", "5000"
        )
    ] == [one.id]
    assert (
        sh.json("jobs", "--group", "haystack", "--until", "1d")
        == sh.json("jobs", "--device", "0", "--search", "needle")
        == []
    )
    assert sh("jobs", "--search", "no such words") == "No jobs match.\n"
    assert "needle" in sh("jobs", "--group", "haystack", "--status", "done")
    for wrong in (("--status", "broken"), ("--since", "soon"), ("--active", "--status", "done")):
        assert "gpudeck" in sh("jobs", *wrong, status=2)


def test_jobs_lists_the_newest_first_and_only_so_many(sh: Shell, shared: Client) -> None:
    numbers = [sh.json("submit", "--wait", "--name", f"n{i}", "--", "true")["id"] for i in range(3)]
    assert [j["id"] for j in sh.json("jobs", "--limit", "2")] == numbers[:0:-1]
    table = sh("jobs", "--limit", "3").splitlines()
    assert table[0].split()[:3] == ["JOB", "NAME", "STATE"]
    assert [line.split()[1] for line in table[1:]] == ["n2", "n1", "n0"]
    assert [line.split().count("done") for line in table[1:]] == [1, 1, 1], "the state is said once"
    assert sh.json("jobs", "--active") == []
    waiting = shared.submit(["sleep", "600"])
    assert [j["id"] for j in sh.json("jobs", "--active")] == [waiting.id]
    assert f"job {waiting.id}: is being ended" in sh("cancel", str(waiting.id))
    shared.wait(waiting.id, WAIT_S)


def test_run_takes_a_workload_its_parameters_and_shows_the_result(
    sh: Shell, tmp_path: Path
) -> None:
    out = sh("run", "gemm", "size=16", "seconds=0.1", "--wait")
    assert "TFLOP/s" in out
    assert "pass" in out
    job = sh.json("jobs", "--limit", "1")[0]
    assert job["spec"]["workload"] == "gemm"
    assert job["spec"]["params"]["size"] == "16"
    assert job["state"]["devices"] == ["cpu"], "it held the device alone"
    assert job["state"]["result"]["params"]["size"] == 16
    number = str(job["id"])
    assert sh("results", number).splitlines()[-1].startswith("pass: relative error")
    assert "must end with .csv or .json" in sh.fails(
        "results", number, "--out", str(tmp_path / "x.txt"), status=1
    )
    assert "cannot write" in sh.fails(
        "results", number, "--out", str(tmp_path / "no" / "x.csv"), status=1
    )


def test_a_job_without_a_result_is_said_to_have_none(sh: Shell) -> None:
    plain = str(sh.json("submit", "--wait", "--", "true")["id"])
    assert "left no result" in sh.fails("results", plain, status=1)


COMPARE = (
    "seq=16,32",
    "head_dim=8",
    "heads=2",
    "causal=both",
    "direction=both",
    "backends=auto,flash,math,cudnn",
    "seconds=0.1",
)


@pytest.mark.slow
def test_a_comparison_is_printed_and_written_as_csv_and_json(sh: Shell, tmp_path: Path) -> None:
    out = sh("run", "compare", *COMPARE, "--wait")
    assert "pass" in out and "all 32 cells: gpudeck results " in out
    number = out.split()[-1]
    table = sh("results", number)
    assert table.splitlines()[1].split() == ["TFLOP/s", "auto", "flash", "math", "cudnn"]
    assert (
        "backward, d 8, S 32, causal" in table
        and "cudnn: cannot do this: it needs a CUDA GPU" in table
    )
    whole = sh.json("results", number)
    assert len(whole["cells"]) == 32 and whole["verdict"] == "pass"
    for name in ("grid.csv", "grid.json"):
        assert name in sh("results", number, "--out", str(tmp_path / name))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "grid.csv").read_text())))
    assert [row["contender"] for row in rows[:4]] == ["auto", "flash", "math", "cudnn"] and len(
        rows
    ) == 32
    assert json.loads((tmp_path / "grid.json").read_text()) == whole


def test_validation_is_a_job_with_a_verdict(sh: Shell) -> None:
    out = sh("run", "validate", "seq=16", "head_dim=8", "trials=3", "inputs=outliers", "--wait")
    assert "pass" in out
    said = sh("results", out.split()[-1])
    assert "trials failed" in said and "backward, d 8, S 16, causal" in said


@pytest.mark.slow
def test_tuning_is_kept_with_the_rest_of_the_state(sh: Shell, shared_home: Path) -> None:
    sh("run", "tune", "seq=16", "head_dim=8", "seconds=0.1", "--wait")
    assert (shared_home / "attention.csv").read_text().count("\n") == 1 + 8


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["run", "nope"], "There are: attention, compare, validate, tune, gemm, copy"),
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
def test_a_wrong_command_line_is_status_2_and_one_line(
    sh: Shell, words: list[str], named: str
) -> None:
    assert named in sh.fails(*words, status=2)


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
        (["submit", "--memory", "5", "--", "true"], "less than 1 MiB"),
        (["submit", "--priority", "x", "--", "true"], "expected a whole number; got"),
        (["run"], "required: WORKLOAD. "),
        (["daemon"], "required: start|stop|status. "),
        (["daemon", "dance"], "dance"),
        (["record", "file", "--seconds", "0"], "0"),
        (["status", "--nope"], "--nope"),
    ],
)
def test_usage_errors_are_status_2_and_name_the_word(
    sh: Shell, words: list[str], named: str
) -> None:
    said = sh.fails(*words, status=2)
    assert named in said and said.rstrip().endswith("--help") and len(said) < 200


@pytest.mark.parametrize("number", ["999999", "0", "99999999999999999999999"])
@pytest.mark.parametrize("verb", ["wait", "cancel", "logs", "results"])
def test_an_unknown_job_is_status_1_and_one_line(sh: Shell, verb: str, number: str) -> None:
    assert f"there is no job {number}. See: gpudeck jobs" in sh.fails(verb, number)


def test_what_can_never_run_is_status_1_and_one_line(sh: Shell) -> None:
    assert "2 GPUs" in sh.fails("submit", "--gpus", "2", "--", "true")
    number = str(sh.json("submit", "--wait", "--", "true")["id"])
    assert "has ended already: done" in sh.fails("cancel", number)


def test_logs_follow_to_the_end(sh: Shell, shared: Client, tmp_path: Path) -> None:
    code = "import os, sys, time\nprint('first')\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('last')"
    job = shared.submit(python(code, tmp_path / "go"))
    eventually(lambda: log_of(job))
    threading.Timer(0.6, (tmp_path / "go").touch).start()
    assert sh("logs", "-f", str(job.id)) == "first\nlast\n"
    assert isinstance(shared.job(job.id).state, Done)


def test_logs_are_neutral_on_a_terminal_and_whole_in_a_pipe(shared: Client) -> None:
    job = shared.submit(["printf", "\\033]0;owned\\007\\033[2Jred\\r\\nnext\\b\\n"])
    shared.wait(job.id, WAIT_S)
    assert (
        gpudeck("logs", str(job.id)).stdout.replace("\r\n", "\n")
        == "\x1b]0;owned\x07\x1b[2Jred\nnext\b\n"
    )
    main_end, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "logs", str(job.id)],
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while data := os.read(main_end, 1000):
            shown += data
    except OSError:
        pass  # how a terminal says that its last process ended
    os.close(main_end)
    assert process.wait(WAIT_S) == 0
    assert b"owned" in shown
    assert b"next" in shown
    assert not {0x1B, 0x07, 0x08} & set(shown)


def test_a_hostile_name_cannot_steer_a_terminal(sh: Shell, shared: Client) -> None:
    shared.wait(shared.submit(["true"], name="\x1b[2Jx\r\n\u202e").id, WAIT_S)
    out = sh("jobs", "--limit", "1") + sh("status")
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_a_reader_that_leaves_ends_it_quietly(shared: Client) -> None:
    job = shared.submit(python("print('x' * 3_000_000)"))
    shared.wait(job.id, WAIT_S)
    command = f"{sys.executable} -m app logs {job.id} | head -c 10"
    found = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.stdout, found.stderr) == ("x" * 10, "")


def test_output_that_has_no_room_is_one_line(shared: Client) -> None:
    found = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m app jobs > /dev/full"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in found.stderr


def test_record_writes_a_trace_that_plays(sh: Shell, tmp_path: Path) -> None:
    out = sh("record", str(tmp_path / "a.trace.gz"), "--seconds", "1.2")
    header, moments = trace.read(tmp_path / "a.trace.gz")
    assert f"{len(moments)} readings" in out
    assert header.devices[0].id == "cpu-0", "it names the kind of device, not this one"
    assert all(not r.processes for m in moments for r in m.readings)
    taken = (tmp_path / "a.trace.gz").read_bytes()
    assert "exists already" in sh.fails("record", str(tmp_path / "a.trace.gz"), "--seconds", "1")
    assert (tmp_path / "a.trace.gz").read_bytes() == taken
    assert "cannot write the trace" in sh.fails(
        "record", str(tmp_path / "no" / "folder"), "--seconds", "1"
    )
    for phases in ("idle", "nope=3", "idle=x", "idle=-1"):
        sh.fails("record", str(tmp_path / "b"), "--phases", phases, status=2)
    assert not (tmp_path / "b").exists()


def test_the_daemon_starts_stops_and_tells(alone: Shell, cpu_home: Path) -> None:
    alone("daemon", "status", status=1)
    assert "is not running" in alone("daemon", "stop")
    assert "The daemon is running (pid " in alone("daemon", "start")
    state = alone.json("daemon", "status")
    assert state["running"] is True
    assert state["home"] == str(cpu_home)
    assert "has stopped" in alone("daemon", "stop")
    assert "Readings now come from cpu" in alone("daemon", "start", "--source", "cpu")
    assert "no trace at" in alone.fails("daemon", "start", "--source", "replay:nowhere.gz")
    assert alone.json("status")["settings"]["source"] == "cpu", (
        "a trace that cannot be played changes nothing"
    )
    kill_daemon()
    assert "CPU" in alone("status"), "a verb starts the daemon where none runs"


def test_doctor_finds_all_well_and_says_what_is_not(alone: Shell, cpu_home: Path) -> None:
    findings = {f["what"]: f for f in alone.json("doctor")}
    assert {f["verdict"] for f in findings.values()} <= {"ok", "warning"}
    assert set(findings) >= {
        "Python and packages",
        "state folder",
        "disk",
        "settings",
        "window libraries",
        "daemon",
        "devices",
    }
    assert alone("doctor").count("\n") == len(findings)
    (cpu_home / "settings.json").write_text("{")
    kill_daemon()
    alone("doctor", status=1)


def test_who_waits_for_a_job_outlives_the_daemon(cpu_home: Path) -> None:
    over = cpu_home / "over"
    with Client() as deck:
        job = ready(deck).submit(["sh", "-c", f"until [ -e {over} ]; do sleep 0.2; done"])
        running(deck, job)
        waiting = waits_for(job)
        kill_daemon()
    over.touch()  # not before: what has been read already is not told by `communicate`
    out, err = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 0, err
    assert "done" in out


def test_a_store_from_a_newer_version_is_one_line(alone: Shell, cpu_home: Path) -> None:

    alone("daemon", "start")
    alone("daemon", "stop")
    with sqlite3.connect(cpu_home / "gpudeck.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "newer GPU Deck (schema 99" in alone.fails("status")


def test_status_of_the_process_is_the_status_of_the_command(shared: Client, tmp_path: Path) -> None:
    assert gpudeck("submit", "--wait", "--", "true").returncode == 0
    assert gpudeck("submit", "--wait", "--", "false").returncode == 1
    wrong = gpudeck("run", "nope")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    blocked = gpudeck("status", env={**os.environ, "GPUDECK_HOME": "/proc/nowhere"})
    assert (blocked.returncode, blocked.stdout, blocked.stderr.count("\n")) == (1, "", 1)
    assert "GPUDECK_HOME" in blocked.stderr
    assert gpudeck("--version").stdout.startswith("gpudeck ")


def test_ctrl_c_while_waiting_leaves_the_job_running(shared: Client) -> None:
    job = shared.submit(["sleep", "600"])
    running(shared, job)
    waiting = waits_for(job)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=WAIT_S)
    assert (waiting.returncode, err.count("\n")) == (130, 1)
    assert f"to end it: gpudeck cancel {job.id}" in err
    assert shared.job(job.id).status == "running"
    shared.cancel(job.id)
    shared.wait(job.id, WAIT_S)
    assert gpudeck("jobs", "--active").stdout == "No jobs are waiting or running.\n"


def in_terminal(*words: str, until: bytes, **env: str) -> bytes:
    """What a command writes on a terminal of 100 x 30 until `until` is seen; it is interrupted then, and ends."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "app", *words],
            {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **env},
        )
    seen = b""
    try:
        while until not in seen:
            seen += os.read(fd, 65536)
        os.kill(pid, signal.SIGINT)
        while True:
            seen += os.read(fd, 65536)
    except OSError:
        pass  # the terminal is closed
    finally:
        os.close(fd)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    return seen


def test_watch_follows_and_leaves_the_terminal_as_it_was(shared: Client) -> None:
    seen = in_terminal("watch", until=b"Press Ctrl+C to quit")
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert seen.index(b"\x1b[?1049h") < seen.index(b"UTIL") < seen.index(b"\x1b[?1049l")
    assert b"\x1b[2m" in seen
    assert b"\x1b[2m" not in in_terminal("watch", until=b"Press Ctrl+C to quit", NO_COLOR="1")


def test_watch_without_a_terminal_says_what_to_do(sh: Shell, shared: Client) -> None:
    assert "gpudeck status --json" in sh.fails("watch")
    with subprocess.Popen(
        [sys.executable, "-m", "app", "watch", "--json"], stdout=subprocess.PIPE, text=True
    ) as feed:
        assert feed.stdout is not None
        first, second = (json.loads(feed.stdout.readline()) for _ in range(2))
        feed.send_signal(signal.SIGINT)
        feed.stdout.close()
    assert second["seq"] > first["seq"]


def test_models_are_listed_chosen_and_forgotten(sh: Shell, tmp_path: Path) -> None:
    folder = write_hf(
        tmp_path / "tiny-7", to_hf(random_model(layers=1, channels=64, vocabulary=64))
    )
    shutil.copy(vocabulary_file(), folder)
    assert "No model is in use" in sh("models")
    assert sh("models", "add", str(folder)).startswith("tiny-7 (")
    made, ours = sh.json("models")
    assert (made["name"], made["layers"], made["dialect"]) == (
        "tiny-7",
        1,
        "flash-linear-attention",
    )
    assert (ours["name"], ours["problem"]) == ("rwkv7-deck-13m", "")
    sh("models", "use", "tiny-7")
    assert re.search(r"tiny-7 .* in use", sh("models"))
    (folder / "model.safetensors").write_bytes(b"")
    assert "truncated or damaged" in sh("models"), (
        "why it cannot be used is said where it is listed"
    )
    assert "truncated or damaged" in sh.fails("models", "use", str(folder))
    sh("models", "use", "none")
    sh("models", "remove", "tiny-7")
    assert "No model is in use" in sh("models")
    assert "no model, or more than one" in sh.fails("models", "use", "tiny-7")
    sh("models", "use", "rwkv7-deck-13m")
    assert re.search(r"rwkv7-deck-13m .* in use", sh("models"))
    assert settings.load().model_folder == "", "as where none was ever chosen"
    assert "comes with the program" in sh.fails("models", "remove", "rwkv7-deck-13m")
    sh("models", "use", "template")
    assert "OWNER/NAME" in sh.fails("models", "pull", "tiny-7")
    assert "Example" in sh.fails("models", "benchmark", status=2)


def test_a_new_source_is_waited_for_and_not_mistaken_for_the_one_before(
    alone: Shell, cpu_home: Path
) -> None:
    alone("daemon", "start")
    assert "Readings now come from replay:h100.trace.gz" in alone(
        "daemon", "start", "--source", "replay:h100.trace.gz"
    )
    seen = alone.json("status")
    assert (seen["source"], {s["device"]["kind"] for s in seen["devices"]}) == (
        "replay of h100.trace.gz",
        {"replay"},
    )
    assert "but it cannot be read: " in alone.fails("daemon", "start", "--source", "nvml"), (
        "there is no GPU here"
    )
    alone("daemon", "start", "--source", "cpu")
    assert alone.json("status")["devices"][0]["device"]["kind"] == "cpu"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("logs", "1", "2"),
            "this command takes one number; 2 is too many. See: gpudeck logs --help",
        ),
        (("wait", "1", "--quick"), "unknown argument: --quick. See: gpudeck wait --help"),
        (("submit", "--array", "5-2", "true"), "indices go upwards, as in 2-5; got '5-2'"),
        (
            ("report", "--format", "html", "--out", "x.md"),
            "--format html and --out x.md name two formats",
        ),
    ],
)
def test_wrong_usage_says_what_is_meant(alone: Shell, words: tuple[str, ...], says: str) -> None:
    assert says in alone.fails(*words, status=2)


def test_an_interrupted_recording_says_what_there_is_of_it(cpu_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.trace.gz"
    command = [sys.executable, "-P", "-m", "app", "record", str(file), "--seconds", "600"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(file.exists)
    with Client() as deck:
        taken = deck.snapshot().devices[0].reading
        eventually(lambda: deck.snapshot().devices[0].reading.time > taken.time + 1)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (130, "")
    assert "interrupted: " in err and "replay:" in err and err.count("\n") == 1
    assert f"{len(trace.read(file)[1])} readings" in err


def test_several_jobs_are_cancelled_and_what_a_job_waits_for_is_told_once(
    sh: Shell, shared: Client, tmp_path: Path
) -> None:
    held, other = shared.submit(["true"], hold=True), shared.submit(["true"], hold=True)
    assert f"job {held.id}: queued, is held; to let it go" in sh("pause", str(held.id))
    foretold = sh("submit", "--dry-run", "--after", str(held.id), "true")
    assert foretold == f"it would wait for job {held.id} (true); nobody knows how long\n"
    assert (
        sh("cancel", str(held.id), str(other.id)) == f"jobs {held.id} and {other.id}: cancelled\n"
    )
    assert (
        sh("cancel", f"{held.id}-{other.id}")
        == "Nothing to cancel: none of these jobs is waiting or running.\n"
    ), "again is no error"
    assert (
        sh("cancel", str(held.id), f"{other.id}-1000000000")
        == f"job {held.id}: had already ended\n"
    )
    assert "there is no job 999999" in sh.fails("cancel", str(held.id), "999999")
    assert "there is no job 999999" in sh.fails("cancel", "--array", "999999")
    assert f"job {held.id} is of no array" in sh.fails("cancel", "--array", str(held.id))
    array = sh.json("submit", "--array", "1-7", "--hold", "--group", "sweep", "--", "true")
    first, last = array[0]["id"], array[6]["id"]
    assert (
        sh("cancel", f"{first}-{first + 1}", str(last))
        == f"jobs {first}, {first + 1} and {last}: cancelled\n"
    )
    assert sh.json("cancel", "--array", str(last))["cancelled"] == [
        first + 2,
        first + 3,
        first + 4,
        first + 5,
    ]
    sh("submit", "--array", "1-6", "--hold", "--group", "sweep", "--", "true")
    assert sh("cancel", "--group", "sweep") == f"6 jobs from {last + 1} to {last + 6}: cancelled\n"
    assert "the token file" in sh.fails(
        "cluster", "add", "ray:lab", "http://head:8265", "--token-file", str(tmp_path / "none")
    )
    assert "no cluster is called ray:lab. To name one" in sh.fails(
        "submit", "--on", "ray:lab", "true"
    )
