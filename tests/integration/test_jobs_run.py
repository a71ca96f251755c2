"""Run jobs with one daemon for the module, and check what is recorded about them."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpudeck.scheduler.aio import AsyncClient
from gpudeck.scheduler.attempts import MAX_RESULT
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Running
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.wait_reasons import QueuePaused
from tests.integration.deck import log_of, python, running
from tests.integration.shell import gpudeck
from tests.support import eventually, lives

WAIT_S = 30.0


def test_a_job_runs_and_its_output_is_kept(shared: Client, tmp_path: Path) -> None:
    before = time.time()
    job = shared.submit(["sh", "-c", "echo out; echo err >&2; pwd"], cwd=tmp_path)
    state = shared.wait(job.id, WAIT_S).state
    assert isinstance(state, Done)
    assert before - 1 < state.started <= state.at < time.time() + 1
    assert shared.log(job.id) == f"out\nerr\n{tmp_path}\n".encode()
    assert shared.log(job.id, offset=4, limit=3) == b"err"
    assert shared.log(job.id, offset=-3) == f"{tmp_path}\n".encode()[-3:]
    assert (paths.job_folder(job.id) / "log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("argv", "reason", "code"),
    [
        (
            ["sh", "-c", "echo first; echo 'no data: x.csv'; exit 3"],
            "exit code 3; last line: no data: x.csv",
            3,
        ),
        (["sh", "-c", "exit 1"], "exit code 1", 1),
        (["sh", "-c", "kill -SEGV $$"], "killed by SIGSEGV", -11),
        (["sh", "-c", "kill -KILL $$"], "killed by SIGKILL (often the kernel, out of memory)", -9),
        (
            ["no-such-program"],
            "cannot start 'no-such-program' in {cwd}: No such file or directory",
            None,
        ),
        (["/"], "cannot start '/' in {cwd}: Permission denied", None),
        (
            ["sh", "-c", "printf '\\033[31mred\\377\\n'; exit 2"],
            "exit code 2; last line: red\ufffd",
            2,
        ),
    ],
)
def test_a_failure_has_a_reason(
    shared: Client, tmp_path: Path, argv: list[str], reason: str, code: int | None
) -> None:
    state = shared.wait(shared.submit(argv, cwd=tmp_path).id, WAIT_S).state
    assert isinstance(state, Failed)
    assert str(state.reason) == reason.format(cwd=tmp_path)
    assert state.code == code


def test_a_missing_folder_is_named_unless_an_earlier_job_may_make_it(
    shared: Client, tmp_path: Path
) -> None:
    made, gone = tmp_path / "made", tmp_path / "gone"
    with pytest.raises(UserError, match=f"^there is no folder {gone} for the job to run in$"):
        shared.submit(["true"], cwd=gone)
    first = shared.submit(["mkdir", str(made)]).id
    later = [shared.submit(["true"], cwd=folder, after=(first,)).id for folder in (made, gone)]
    states = [shared.wait(number, WAIT_S).state for number in later]
    assert isinstance(states[0], Done)
    assert isinstance(states[1], Failed)
    assert str(gone) in str(states[1].reason)


def test_the_environment_reaches_only_the_job(shared: Client, shared_home: Path) -> None:
    code = (
        "import os; print(os.environ['TOKEN'], os.environ.get('HOME'), "
        "sorted(k for k in os.environ if 'DECK' in k or 'CUDA' in k))"
    )
    job = shared.submit(python(code), env={"TOKEN": "s3cr3t-ü"}, name="quiet")
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    deck = [f"GPUDECK_{name}" for name in ("ARTEFACTS", "ATTEMPT", "JOB", "RESULT", "TRY")]
    names = ["CUDA_VISIBLE_DEVICES", *deck]
    assert log_of(job) == f"s3cr3t-ü None {names}\n", "its own environment, not the daemon's"
    for shown in (shared.job(job.id), shared.jobs(), shared.snapshot()):
        assert "s3cr3t" not in repr(shown)


def test_a_job_sees_no_gpu_it_does_not_hold(shared: Client) -> None:
    job = shared.submit(
        ["sh", "-c", 'echo "<$CUDA_VISIBLE_DEVICES>"'],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0,1"},
    )
    shared.wait(job.id, WAIT_S)
    assert log_of(job) == "<>\n"


def test_arguments_of_any_language_and_form_arrive(shared: Client, tmp_path: Path) -> None:
    folder = tmp_path / "ä b 猫 '\"$(x)"
    folder.mkdir()
    arguments = ["ü", "", "a b", "'", '"', "\n", "-x", "$HOME", "*", "猫"]
    job = shared.submit(
        python("import sys, os; print(ascii((sys.argv[1:], os.getcwd())))", *arguments), cwd=folder
    )
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    assert log_of(job) == ascii((arguments, str(folder))) + "\n"


def test_a_large_environment_and_command_arrive(shared: Client) -> None:
    job = shared.submit(
        python("import os, sys; print(len(os.environ['BIG']), len(sys.argv[1]))", "x" * 100_000),
        env={"BIG": "y" * 100_000},
    )
    shared.wait(job.id, WAIT_S)
    assert log_of(job) == "100000 100000\n"


def test_a_command_too_large_for_the_kernel_fails_with_a_reason(shared: Client) -> None:
    state = shared.wait(shared.submit(["true", *["x" * 100_000] * 50]).id, WAIT_S).state
    assert isinstance(state, Failed)
    assert str(state.reason).endswith("Argument list too long")


@pytest.mark.parametrize(
    ("argv", "more", "words"),
    [
        ([], {}, "no command"),
        (["a\0b"], {}, "NUL"),
        (["true"], {"env": {"A=B": "x"}}, "environment variable"),
        (["true"], {"gpus": -1}, "0 or more"),
        (["true"], {"gpus": 2}, "2 GPUs"),
        (["caf\udce9"], {}, "UTF-8"),
        (["true"], {"env": {"LATIN": "caf\udce9"}}, "UTF-8"),
    ],
)
def test_a_job_that_can_never_run_is_refused_and_not_stored(
    shared: Client, argv: list[str], more: dict[str, object], words: str
) -> None:
    before = shared.jobs()
    with pytest.raises(UserError, match=words) as caught:
        shared.submit(argv, **more)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert [j.id for j in shared.jobs()] == [j.id for j in before]


@pytest.mark.parametrize("number", [0, 10**6, 2**63, 10**25])
def test_unknown_jobs(shared: Client, number: int) -> None:
    for verb in (shared.job, shared.cancel, shared.wait, shared.log):
        with pytest.raises(NotFound, match=f"there is no job {number}"):
            verb(number)


def test_a_job_that_ended_cannot_be_cancelled(shared: Client) -> None:
    job = shared.submit(["true"])
    shared.wait(job.id, WAIT_S)
    with pytest.raises(UserError, match="has ended already: done"):
        shared.cancel(job.id)


def test_progress_is_shown_while_the_job_runs(shared: Client, tmp_path: Path) -> None:
    code = """if True:
        import sys, time, os
        print('{"gpudeck":"progress","done":1,"total":4,"note":"warm"}')
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        print('{"gpudeck":"progress","done":4,"total":4}')"""
    job = shared.submit(python(code, tmp_path / "go"))

    def progress() -> object:
        state = shared.job(job.id).state
        return state.progress if isinstance(state, Running) else None

    said = eventually(progress)
    assert (said.done, said.total, said.note) == (1.0, 4.0, "warm")  # type: ignore[attr-defined]
    (tmp_path / "go").touch()
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)


def test_hostile_output_harms_only_itself(shared: Client) -> None:
    code = r"""if True:
        import sys, time
        out = sys.stdout.buffer
        out.write(b'{"gpudeck":"progress","done":1,"total":2,"x":' + b'[' * 3000 + b'\n')
        out.write(b'{"gpudeck":"progress","done":1,"total":2,"note":"\xff"}\n')
        out.write(b'{"gpudeck":"progress","done":NaN,"total":1e999}\n' + b'\0' * 3_000_000 + b'\n')
        now = time.time()
        for i, flops in enumerate((0, 1.7e308)):
            line = b'{"gpudeck":"progress","done":1,"total":2,"flops":%r,"time":%r}\n'
            out.write(line % (flops, now + i * 3e-7))
        out.flush()
        time.sleep(1.2)  # over two readings"""
    job = shared.submit(python(code), gpus=1)
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    assert shared.snapshot().devices[0].reading is not None


RESULT = "import os, json; open(os.environ['GPUDECK_RESULT'], 'w').write({})"


def test_a_result_is_stored_with_the_job(shared: Client) -> None:
    code = (
        RESULT.format("json.dumps({'tflops': 1.5}, indent=1) + chr(10)")
        + "; open(os.environ['GPUDECK_ARTEFACTS'] + '/plot.svg', 'w').write('<svg/>')"
    )
    job = shared.wait(shared.submit(python(code)).id, WAIT_S)
    assert isinstance(job.state, Done)
    assert json.loads(bytes(job.state.result)) == {"tflops": 1.5}
    assert (paths.job_folder(job.id) / "artefacts" / "plot.svg").read_text() == "<svg/>"


def test_printed_values_are_those_of_whole_lines(shared: Client) -> None:
    """Only the end of a long log is read, which begins within a line."""
    code = "print('noise x=7\\n' * 30000 + 'step=3 loss=2.5 a=1')"  # begins at the x of a line
    job = shared.wait(shared.submit(python(code)).id, WAIT_S)
    assert isinstance(job.state, Done)
    assert json.loads(bytes(job.state.result)) == {"step": 3, "loss": 2.5, "a": 1}


def test_lists_cut_a_long_command_that_runs_whole(shared: Client) -> None:
    argv = ("sh", "-c", "echo $#", *("x" * 9 for _ in range(100_000)))
    job = shared.submit(argv, params={"shapes": "1," * 60_000}).job
    assert shared.wait(job.id, WAIT_S).status == "done"
    lists = (shared.snapshot().jobs, shared.jobs(), shared.find(Search("sh"))[0])
    for found in (next(j for j in jobs if j.id == job.id) for jobs in lists):
        assert (found.cut, found.spec.argv[:3]) == (True, argv[:3])
        assert sum(map(len, (*found.spec.argv, *found.spec.params.values()))) < 10_000
    assert (shared.job(job.id).cut, shared.job(job.id).spec.argv) == (False, argv)
    assert log_of(job) == "99999\n"


def test_lists_cut_a_large_result(shared: Client) -> None:
    job = shared.wait(
        shared.submit(python(RESULT.format("json.dumps({'x': 'y' * 100_000})"))).id, WAIT_S
    )
    assert job.result is not None
    assert len(job.result) > 100_000
    for shown in (shared.jobs(limit=1)[0], shared.snapshot().jobs[0]):
        assert shown.id == job.id
        assert shown.result is None
        assert isinstance(shown.state, Done)
        assert shown.state.large


@pytest.mark.parametrize(
    "code",
    [
        RESULT.format(f"json.dumps({{'x': 'y' * {MAX_RESULT}}})"),
        RESULT.format("'{\"tflops\": '"),
        RESULT.format("'[1, 2]'"),
        RESULT.format("'{\"x\": ' + '[' * 5000 + ']' * 5000 + '}'"),
        RESULT.format("'{\"x\": ' + '[' * 800 + ']' * 800 + '}'"),
        "import os; open(os.environ['GPUDECK_RESULT'], 'wb').write(b'{\"x\": \"\\xff\"}')",
        "import os; os.symlink('/proc/self/environ', os.environ['GPUDECK_RESULT'])",
        "import os; os.mkfifo(os.environ['GPUDECK_RESULT'])",
        "import os; os.mkdir(os.environ['GPUDECK_RESULT'])",
        "import os; log = os.path.dirname(os.environ['GPUDECK_RESULT']) + '/log'; "
        "os.remove(log); os.mkfifo(log)",
    ],
    ids=["oversized", "cut", "no object", "too deep", "deep", "no UTF-8", "link", "pipe", "folder",
         "log is a pipe"],
)  # fmt: skip
def test_an_invalid_result_is_ignored(shared: Client, code: str) -> None:
    job = shared.wait(shared.submit(python(code)).id, WAIT_S)
    assert isinstance(job.state, Done)
    assert bytes(job.state.result) == b"null"
    assert shared.snapshot().jobs[0].id == job.id, "and everybody can go on reading the list"


def test_cancel_ends_the_whole_tree_however_it_hides(shared: Client, tmp_path: Path) -> None:
    code = """if True:
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import signal, time; signal.signal(15, 1); print(flush=True); time.sleep(600)"
        sleep = [sys.executable, "-S", "-c", code]
        pids = [os.getpid()]
        for more in ({}, {"start_new_session": True}, {"process_group": 0}):
            child = subprocess.Popen(sleep, stdout=subprocess.PIPE, **more)
            child.stdout.readline()
            pids.append(child.pid)
        told, tell = os.pipe()
        if (pid := os.fork()) == 0:  # a daemon: its parent ends
            os.setsid()
            if (pid := os.fork()) == 0:
                os.write(tell, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        os.waitpid(pid, 0)
        pids.append(int(os.read(told, 20)))
        open(sys.argv[1] + ".new", "w").write(" ".join(map(str, pids)))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(600)"""
    job = shared.submit(python(code, tmp_path / "pids"))
    eventually((tmp_path / "pids").exists)
    pids = [int(p) for p in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 5
    assert all(lives(p) for p in pids)
    shown = shared.cancel(job.id)
    assert isinstance(shown.state, Running)
    assert shown.state.stopping
    assert isinstance(shared.wait(job.id, WAIT_S).state, Cancelled)
    assert [p for p in pids if lives(p)] == []


def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(
    shared: Client, tmp_path: Path
) -> None:
    code = (
        "import signal, time, sys; signal.signal(15, signal.SIG_IGN); "
        "open(sys.argv[1], 'w').close(); time.sleep(600)"
    )
    job = shared.submit(python(code, tmp_path / "up"))
    eventually((tmp_path / "up").exists)
    runner = running(shared, job).runner
    shared.cancel(job.id)
    assert isinstance(shared.wait(job.id, WAIT_S).state, Cancelled)
    assert not lives(runner)


def test_a_job_may_clean_up_when_it_is_cancelled(shared: Client, tmp_path: Path) -> None:
    code = """if True:
        import signal, sys, time
        signal.signal(15, lambda *_: (print("saved"), sys.exit(0)))
        open(sys.argv[1], "w").close()
        time.sleep(600)"""
    job = shared.submit(python(code, tmp_path / "up"))
    eventually((tmp_path / "up").exists)
    shared.cancel(job.id)
    assert isinstance(shared.wait(job.id, WAIT_S).state, Cancelled)
    assert log_of(job) == "saved\n"


def test_processes_that_a_job_leaves_behind_end_with_it(shared: Client, tmp_path: Path) -> None:
    job = shared.submit(["sh", "-c", f"sleep 600 & echo $! > '{tmp_path}/pid'"])
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)
    assert not lives(int((tmp_path / "pid").read_text()))


MARK = """if True:
    import fcntl, os, sys, time
    inside, folder = sys.argv[1], sys.argv[2]
    me = os.path.join(folder, "in-" + os.environ["GPUDECK_JOB"])
    open(me, "w").close()
    present = len([n for n in os.listdir(folder) if n.startswith("in-")])
    end = time.monotonic() + 10
    while inside == "together" and present < 2 and time.monotonic() < end:
        present = len([n for n in os.listdir(folder) if n.startswith("in-")])
    print(present)
    if inside == "alone": os.remove(me)"""


def test_jobs_that_need_the_device_run_one_at_a_time(shared: Client, tmp_path: Path) -> None:
    jobs = [shared.submit(python(MARK, "alone", tmp_path), gpus=1) for _ in range(6)]
    ended = [shared.wait(j.id, WAIT_S).state for j in jobs]
    assert [log_of(j) for j in jobs] == ["1\n"] * 6
    spans = [(s.started, s.at) for s in ended if isinstance(s, Done)]
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), (
        "and in the order in which they came"
    )
    assert all(s.devices == ("cpu",) for s in ended if isinstance(s, Done))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor runs one job at a time")
def test_jobs_without_a_device_run_side_by_side(shared: Client, tmp_path: Path) -> None:
    jobs = [shared.submit(python(MARK, "together", tmp_path)) for _ in range(2)]
    for job in jobs:
        shared.wait(job.id, WAIT_S)
    assert [int(log_of(j)) for j in jobs] == [2, 2]


def test_a_waiting_job_has_a_reason_and_is_cancelled_at_once(
    shared: Client, tmp_path: Path
) -> None:
    first = shared.submit(
        python(f"import time, os\nwhile not os.path.exists('{tmp_path}/go'): time.sleep(0.01)"),
        gpus=1,
        name="first",
    )
    second = shared.submit(["touch", str(tmp_path / "ran")], gpus=1)
    assert str(second.state.reason) == (
        f"needs the CPU; 0 free: CPU is held by job {first.id} (first)"
    )
    assert shared.snapshot().devices[0].holders == (first.id,)
    assert isinstance(shared.cancel(second.id).state, Cancelled)
    (tmp_path / "go").touch()
    shared.wait(first.id, WAIT_S)
    assert not (tmp_path / "ran").exists()


def test_a_paused_queue_starts_nothing_until_it_is_resumed(shared: Client) -> None:
    shared.pause()
    try:
        job = shared.submit(["true"])
        assert job.state.wait == QueuePaused()
        assert shared.snapshot().paused
    finally:
        shared.pause(False)
    assert isinstance(shared.wait(job.id, WAIT_S).state, Done)


def test_wait_times_out_with_a_message(shared: Client) -> None:
    job = shared.submit(["sleep", "600"])
    with pytest.raises(TimeoutError, match=f"job {job.id} is still running"):
        shared.wait(job.id, 0.0)
    shared.cancel(job.id)
    shared.wait(job.id, WAIT_S)


def test_many_clients_at_once_lose_nothing(shared: Client, shared_home: Path) -> None:
    ids: list[int] = []

    def submit() -> None:
        with Client() as deck:
            for _ in range(5):
                ids.append(deck.submit(["true"], env={}).id)

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 30
    assert all(isinstance(shared.wait(i, WAIT_S).state, Done) for i in ids)
    assert set(ids) <= {j.id for j in shared.jobs(limit=1000)}


def test_an_acknowledged_job_is_on_disk(shared: Client, shared_home: Path) -> None:
    job = shared.submit(["sleep", "600"], name="acknowledged")
    with sqlite3.connect(f"file:{shared_home}/gpudeck.sqlite?mode=ro", uri=True) as db:
        ((spec,),) = db.execute("SELECT spec FROM jobs WHERE id = ?", (job.id,)).fetchall()
    db.close()
    assert json.loads(spec)["name"] == "acknowledged"
    shared.cancel(job.id)
    shared.wait(job.id, WAIT_S)


NICE = """if True:
    import os, subprocess, sys
    print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)
    subprocess.run([sys.executable, "-S", "-c", "import os; print(os.nice(0))"])"""


def test_nice_lowers_the_cpu_priority_of_a_job_and_its_children(
    shared: Client, tmp_path: Path
) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    job = shared.submit(python(NICE), nice=7).wait(20)
    assert job.log().split() == [str(own + 7).encode()] * 2
    plain = shared.submit(python(NICE)).wait(20)
    assert plain.log().split() == [str(own).encode()] * 2
    submitted = gpudeck("submit", "--nice", "19", "--wait", "--json", "--", *python(NICE))
    number = json.loads(submitted.stdout)["id"]
    assert shared.log(number).split() == [str(min(own + 19, 19)).encode()] * 2
    assert "lowered by 19" in gpudeck("jobs", str(number)).stdout

    async def submit() -> int:
        async with AsyncClient() as deck:
            return (await (await deck.submit(python(NICE), nice=3)).wait(20)).job.id

    assert shared.log(asyncio.run(submit())).split() == [str(own + 3).encode()] * 2


@pytest.mark.parametrize("nice", [-1, 20])
def test_nice_has_limits(shared: Client, nice: int) -> None:
    with pytest.raises(UserError, match=f"^nice must be from 0 to 19, not {nice}$"):
        shared.submit(["true"], nice=nice)


def test_nice_is_refused_for_a_cluster(shared: Client) -> None:
    with pytest.raises(UserError, match=r"^nice cannot be chosen for a cluster"):
        shared.submit(["true"], nice=5, where="ray:lab")
    refused = gpudeck("submit", "--nice", "5", "--on", "ray:lab", "--", "true")
    assert (refused.returncode, "nice cannot be chosen" in refused.stderr) == (1, True)
