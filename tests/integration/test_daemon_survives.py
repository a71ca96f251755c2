"""What nobody may lose: crashes of the daemon, of runners, of the machine; full disks; two
daemons; strange stores."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors import local
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Lost, Queued, Running, Starting
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.wait_reasons import QueuePaused
from gpudeck.scheduler.store import Store
from tests.integration.deck import answers, daemon_pid, kill_daemon, log_of, python, ready, running
from tests.support import command_of, eventually, lives, send, state_folder, users_of

WAIT_S = 30.0

RECORD = """if True:
    import os, sys, time
    with open(sys.argv[1], "a") as f: f.write(os.environ["GPUDECK_JOB"] + "\\n")
    while sys.argv[2:] and not os.path.exists(sys.argv[2]): time.sleep(0.01)
    print("ended")"""


def test_a_daemon_serves_though_the_process_that_started_it_has_ended(cpu_home: Path) -> None:
    """Nobody reads its report that it is ready."""
    nobody, told = os.pipe()
    os.close(nobody)
    argv = [sys.executable, "-P", "-m", "gpudeck.scheduler.daemon"]
    daemon = subprocess.Popen(argv, stdout=told, start_new_session=True, cwd="/")
    os.close(told)
    eventually(answers)
    with Client() as deck:
        assert type(ready(deck).wait(deck.submit(python("")).id, WAIT_S).state) is Done
    send(daemon.pid, signal.SIGTERM)
    assert daemon.wait(WAIT_S) == 0


def test_a_killed_daemon_loses_no_job_and_runs_none_twice(cpu_home: Path, tmp_path: Path) -> None:
    """Again and again in the middle of submitting and starting. Every job says on disk that it
    ran: each exactly once."""
    ran, go = tmp_path / "ran", tmp_path / "go"
    ids: list[int] = []
    with Client() as deck:
        long = ready(deck).submit(python(RECORD, ran, go), gpus=1)
        first_state = running(deck, long)
        ids.append(long.id)
    for round_ in range(5):
        with Client() as deck:
            for number in range(8):
                ids.append(deck.submit(python(RECORD, ran), gpus=number % 2).id)
                if number == round_ + 2:
                    kill_daemon()
                    break
    with Client() as deck:
        state = running(deck, long)
        assert (state.runner, state.started, state.attempt) == (
            first_state.runner,
            first_state.started,
            first_state.attempt,
        )
        go.touch()
        ended = [deck.wait(i, WAIT_S) for i in ids]
    assert [type(j.state) for j in ended] == [Done] * len(ids)
    assert sorted(int(line) for line in ran.read_text().split()) == sorted(ids)
    assert log_of(long) == "ended\n"


def test_a_job_that_ends_while_no_daemon_runs_is_stored_with_its_output(
    cpu_home: Path, tmp_path: Path
) -> None:
    code = """if True:
        import os, sys, time
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        open(os.environ["GPUDECK_RESULT"], "w").write('{"tflops": 2}')
        print(sys.argv[2]); sys.exit(int(sys.argv[3]))"""
    go = tmp_path / "go"
    with Client() as deck:
        good, bad = (
            ready(deck).submit(python(code, go, "last words", status)) for status in (0, 7)
        )
        runners = (
            [running(deck, job).runner for job in (good, bad)]
            if (os.cpu_count() or 1) > 1
            else [running(deck, good).runner]
        )
        kill_daemon()
    go.touch()
    eventually(lambda: not any(lives(r) for r in runners))
    with Client() as deck:
        done, failed = deck.wait(good.id, WAIT_S).state, deck.wait(bad.id, WAIT_S).state
    assert isinstance(done, Done)
    assert bytes(done.result) == b'{"tflops": 2}'
    assert isinstance(failed, Failed)
    assert str(failed.reason) == "exit code 7; last line: last words"
    assert done.at <= time.time()


def test_jobs_outlive_a_stopped_daemon_and_are_adopted_by_the_next(
    cpu_home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = RECORD.replace(
        "while", """print('{"gpudeck":"progress","done":1,"total":2}', flush=True)\n    while"""
    )
    with Client() as deck:
        job = ready(deck).submit(python(code, tmp_path / "ran", go), gpus=1)
        before = running(deck, job)
        pid = daemon_pid()
        deck.stop_daemon()
        eventually(lambda: not lives(pid))
    assert lives(before.runner)
    with Client() as deck:
        state = running(deck, job)
        assert state.runner == before.runner
        assert deck.snapshot().devices == () or deck.snapshot().devices[0].holders == (job.id,)
        said = eventually(lambda: isinstance(s := deck.job(job.id).state, Running) and s.progress)
        assert said.done == 1.0, "what it said before is read again from its log"
        assert isinstance(deck.submit(["true"], gpus=1).state, Queued), (
            "the device it holds is not given away"
        )
        go.touch()
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)


def users_daemon(home: Path) -> list[int]:
    return [p for p in users_of(home) if b"gpudeck.scheduler.daemon" in command_of(p)]


def test_an_adopted_job_can_be_cancelled_and_a_cancel_survives_a_crash(
    cpu_home: Path, tmp_path: Path
) -> None:
    code = """if True:
        import os, signal, sys, time
        signal.signal(15, lambda *_: open(sys.argv[1], "w").close())
        print("up")
        while not os.path.exists(sys.argv[2]): time.sleep(0.01)"""
    asked, go = tmp_path / "asked", tmp_path / "go"
    with Client() as deck:
        job = ready(deck).submit(python(code, asked, go))
        eventually(lambda: log_of(job))
        kill_daemon()
    with Client() as deck:
        running(deck, job)
        deck.cancel(job.id)
        eventually(asked.exists)
        kill_daemon()
    go.touch()
    with Client() as deck:
        assert isinstance(deck.wait(job.id, WAIT_S).state, Cancelled)


def test_a_killed_runner_means_lost_and_its_processes_are_gone(
    cpu_home: Path, tmp_path: Path
) -> None:
    code = """if True:
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
        print(os.getpid(), child.pid, flush=True)
        time.sleep(600)"""  # noqa: E501
    with Client() as deck:
        job = ready(deck).submit(python(code), gpus=1)
        waiting = deck.submit(["true"], gpus=1)
        pids = [int(p) for p in eventually(lambda: log_of(job)).split()]
        send(running(deck, job).runner, signal.SIGKILL)
        state = deck.wait(job.id, WAIT_S).state
        assert isinstance(state, Lost)
        assert "runner was killed" in str(state.reason)
        eventually(lambda: not any(lives(p) for p in pids))
        assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done), "the device is free again"


def test_a_killed_runner_leaves_no_process_that_cleared_its_environment(
    cpu_home: Path, tmp_path: Path
) -> None:
    """Test with and without a running daemon."""
    pid_file = tmp_path / "pid"
    command = [
        "env",
        "-i",
        "sh",
        "-c",
        f"sleep 600 & echo $! > '{pid_file}.new'; mv '{pid_file}.new' '{pid_file}'; wait",
    ]
    for killed in (False, True):
        with Client() as deck:
            job = ready(deck).submit(command)
            hidden = int(eventually(lambda: pid_file.exists() and pid_file.read_text()))
            runner = running(deck, job).runner
            if killed:
                kill_daemon()
        send(runner, signal.SIGKILL)
        with Client() as deck:
            assert isinstance(deck.wait(job.id, WAIT_S).state, Lost)
            eventually(lambda: not lives(hidden))  # noqa: B023
        pid_file.unlink()


def test_a_pause_survives_a_restart(cpu_home: Path) -> None:
    with Client() as deck:
        deck.pause()
        job = deck.submit(["true"])
        deck.stop_daemon()
    with Client() as deck:
        assert ready(deck).snapshot().paused
        assert deck.job(job.id).state.wait == QueuePaused()
        deck.pause(False)
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)


def test_after_a_power_cut_running_jobs_are_lost_and_waiting_jobs_run(
    cpu_home: Path, tmp_path: Path
) -> None:
    """The stored boot id is another: then even a process with the right pid and start time is
    not ours."""
    with Client() as deck:
        job = ready(deck).submit(["sleep", "600"], gpus=1)
        waiting = deck.submit(["true"], gpus=1)
        state = running(deck, job)
        kill_daemon()
    store = Store(paths.store_file())
    store.update(
        msgspec.structs.replace(
            store.get(job.id), state=msgspec.structs.replace(state, boot="before the power cut")
        )
    )
    store.close()
    with Client() as deck:
        lost = deck.wait(job.id, WAIT_S).state
        assert isinstance(lost, Lost)
        assert str(lost.reason) == "the machine was restarted while it ran"
        assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)


def test_an_interrupted_start_is_repeated_and_the_job_runs_once(
    cpu_home: Path, tmp_path: Path
) -> None:
    """The daemon dies between starting the runner and opening its gate: that runner ends without
    having run anything."""
    ran = tmp_path / "ran"
    with Client() as deck:
        job = ready(deck).submit(python(RECORD, ran), gpus=1, hold=True)
        kill_daemon()
    store = Store(paths.store_file())
    executor = local.Local(lambda job, runner: None)
    running = executor.prepare(job.job, "attempt-of-the-dead", ("cpu",))
    kept = store.get(job.id)
    going = msgspec.structs.replace(kept, spec=msgspec.structs.replace(kept.spec, hold=False))
    store.update(
        msgspec.structs.replace(going, state=Starting("attempt-of-the-dead", ("cpu",), 1.0))
    )
    store.close()
    executor.abandon(running)
    with Client() as deck:
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
    assert ran.read_text() == f"{job.id}\n"


def test_clients_that_start_the_daemon_at_the_same_moment_get_one(cpu_home: Path) -> None:
    pids: list[int] = []
    errors: list[Exception] = []

    def start() -> None:
        try:
            with Client() as deck:
                deck.submit(["true"], env={})
                pids.append(daemon_pid())
        except UserError as e:
            errors.append(e)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(pids)) == 1
    eventually(lambda: len(users_daemon(cpu_home)) == 1)
    with Client() as deck:
        assert len(deck.jobs()) == 4


def test_the_daemon_raises_its_limit_of_files_and_jobs_get_that_of_their_submitter(
    cpu_home: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
        deck = Client()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with deck:
        job = deck.submit(
            python("import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))")
        )
        job.wait(WAIT_S)
        assert job.log() == f"{soft} {hard}\n".encode()
        assert resource.prlimit(daemon_pid(), resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_second_daemon_reports_that_one_answers_already(cpu_home: Path) -> None:
    with Client():
        first = daemon_pid()
        second = subprocess.run(
            [sys.executable, "-P", "-m", "gpudeck.scheduler.daemon"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (second.returncode, second.stdout, second.stderr) == (0, "ready\n", "")
    assert daemon_pid() == first
    assert lives(first)


def test_a_bug_ends_the_daemon_and_is_logged(cpu_home: Path) -> None:
    code = """if True:
        import sys
        from gpudeck.scheduler.background.instance import BackgroundProcess, run_single_instance
        from gpudeck.scheduler.daemon import daemon
        from gpudeck.scheduler.protocol import paths
        daemon.Monitor.set_devices = lambda self, devices: 1 / 0
        sys.exit(run_single_instance(BackgroundProcess("the daemon", paths.daemon_lock(), paths.daemon_socket(), paths.daemon_log()), daemon.serve))"""  # noqa: E501
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "ready\n")
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")
    with Client() as deck:
        ready(deck)


def test_a_daemon_that_hangs_is_reported_and_no_second_one_starts(cpu_home: Path) -> None:
    with Client():
        os.kill(daemon_pid(), signal.SIGSTOP)
    try:
        with pytest.raises(DaemonGone, match="no answer within"), Client(timeout=0.2) as deck:
            deck.snapshot()
        assert len(users_daemon(cpu_home)) == 1
    finally:
        os.kill(daemon_pid(), signal.SIGCONT)


@pytest.mark.parametrize("name", ["with a blank", "ünï 猫", "x" * 100 + "/" + "y" * 100])
def test_the_state_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    with state_folder(tmp_path / name) as home, Client() as deck:
        settings.save(Settings(source="cpu"))
        job = deck.submit(["sh", "-c", "echo $GPUDECK_RESULT"])
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
        assert log_of(job) == f"{home}/jobs/{job.id}/result.json\n"
        assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("gpudeck.sqlite", b"this is no database, but long enough to be one" * 50, "damaged"),
        ("settings.json", b'{"telemetry_hz": "fast"}', "settings.json"),
        ("daemon.log", None, "log"),
        ("daemon.sock", None, "socket"),
        ("gpudeck.sqlite", None, "cannot be used"),
    ],
)
def test_an_error_at_the_start_is_reported_in_one_line(
    home: Path, file: str, content: bytes | None, words: str
) -> None:
    paths.ensure(home)
    if content is None:
        (home / file).mkdir()
    else:
        (home / file).write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        Client()
    assert "\n" not in str(caught.value)
    assert content is None or (home / file).read_bytes() == content


def test_a_damaged_history_is_put_aside_and_the_daemon_works(cpu_home: Path) -> None:
    paths.ensure(cpu_home)
    paths.history_file().write_bytes(b"no history")
    with Client() as deck:
        eventually(
            lambda: any(
                "history was damaged and starts anew" in str(n) for n in deck.snapshot().notices
            )
        )
        eventually(lambda: deck.history("cpu", ["util"], 0.0).times)
        deck.submit(["true"])
    assert (cpu_home / "history.sqlite.damaged").read_bytes() == b"no history"


def test_readings_survive_a_stop(cpu_home: Path) -> None:
    with Client() as deck:
        eventually(lambda: (d := ready(deck).snapshot().devices) and d[0].reading)
        deck.stop_daemon()
    stopped = time.time()
    with Client() as deck:
        assert deck.history("cpu", ["util"], 0.0, stopped).times != []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a state folder on a file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        with state_folder(folder / "home") as home:
            settings.save(Settings(source="cpu"))
            yield home
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(file: Path) -> None:
    """Fill the file system to its last byte."""
    with file.open("wb", buffering=0) as f:
        for size in (65536, 4096, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                continue


def test_a_full_disk_is_reported_in_one_line_and_nothing_is_lost(
    small_disk: Path, tmp_path: Path
) -> None:
    ballast = small_disk.parent / "ballast"
    go = tmp_path / "go"
    with Client() as deck:
        ended = deck.wait(ready(deck).submit(["true"]).id, WAIT_S)
        silent = RECORD.replace(
            'print("ended")', "pass"
        )  # a job that prints where nothing can be written fails by itself
        job = deck.submit(python(silent, tmp_path / "ran", go), gpus=1)
        waiting = deck.submit(python(RECORD, tmp_path / "ran"), gpus=1)
        hog = deck.submit(python(silent, tmp_path / "hog", tmp_path / "never"))
        eventually(lambda: (tmp_path / "ran").exists() and (tmp_path / "hog").exists())
        fill(ballast)
        with pytest.raises(UserError, match=r"disk is full.*Free some space") as caught:
            for _ in range(1000):  # the log of the database has room for a few
                deck.submit(["true", "x" * 10_000])
        assert "\n" not in str(caught.value)
        fill(ballast.with_name("more"))
        with pytest.raises(UserError, match="unchanged"):
            deck.configure(theme="dark")
        deck.cancel(hog.id)  # stopping what may be filling the disk must work
        go.touch()
        kept = deck.jobs(limit=1000)
        runner = running(deck, hog).runner
    kill_daemon()
    send(
        runner, signal.SIGKILL
    )  # what became of this one cannot be stored when the next daemon finds it
    with Client() as deck:
        assert any("disk is full" in str(n) for n in deck.snapshot().notices)
        assert [deck.job(j.id).status for j in (job, hog)] == ["running", "running"]
        ballast.unlink()
        ballast.with_name("more").unlink()
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
        assert isinstance(deck.wait(hog.id, WAIT_S).state, Lost), (
            "that it was cancelled could not be stored before the crash"
        )
        assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)
        assert isinstance(deck.wait(deck.submit(["true"]).id, WAIT_S).state, Done)
        eventually(lambda: not deck.snapshot().notices)
        assert {j.id for j in kept} <= {j.id for j in deck.jobs(limit=1000)}
        assert type(deck.job(ended.id).state) is Done
        deck.stop_daemon()
    assert (tmp_path / "ran").read_text() == f"{job.id}\n{waiting.id}\n"
    fill(ballast)  # now there is no room even for what SQLite needs to open a file
    with pytest.raises(UserError, match=r"disk is full.*Free some space"):
        Client()


@pytest.mark.parametrize("variable", ["GPUDECK_HOME", "XDG_STATE_HOME"])
def test_a_relative_state_folder_is_the_same_for_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    home = tmp_path / "state" if variable == "GPUDECK_HOME" else tmp_path / "state" / "gpudeck"
    with state_folder(home):
        settings.save(Settings(source="cpu"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("GPUDECK_HOME")
        monkeypatch.setenv(variable, "state")
        with Client() as deck:
            assert isinstance(deck.wait(deck.submit(["true"]).id, WAIT_S).state, Done)
        assert users_daemon(home) != []


@pytest.mark.parametrize("name", ["daemon.sock", "daemon.lock"])
def test_a_daemon_whose_socket_is_deleted_ends_and_the_next_adopts_its_jobs(
    cpu_home: Path, tmp_path: Path, name: str
) -> None:
    go = tmp_path / "go"
    with Client() as deck:
        job = ready(deck).submit(python(RECORD, tmp_path / "ran", go), gpus=1)
        runner = running(deck, job).runner
        pid = daemon_pid()
        (cpu_home / name).unlink()
        eventually(lambda: not lives(pid))
    assert "was deleted, so nobody can find it" in paths.daemon_log().read_text()
    with Client() as deck:
        assert running(deck, job).runner == runner
        go.touch()
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)


def test_a_deleted_state_folder_ends_its_daemon_and_not_its_jobs(
    cpu_home: Path, tmp_path: Path
) -> None:
    with Client() as deck:
        job = ready(deck).submit(python(RECORD, tmp_path / "ran", tmp_path / "go"), gpus=1)
        runner = running(deck, job).runner
        eventually((tmp_path / "ran").exists)
        pid = daemon_pid()
        cpu_home.rename(tmp_path / "gone")
        eventually(lambda: not lives(pid))
    assert "was deleted" in (tmp_path / "gone" / "daemon.log").read_text()
    assert lives(runner)
    settings.save(Settings(source="cpu"))
    with Client() as deck:
        assert ready(deck).jobs() == ()
        assert users_daemon(cpu_home) == [daemon_pid()]


def test_jobs_whose_records_went_with_the_deleted_log_never_run_again(
    cpu_home: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with Client() as deck:
        job = ready(deck).submit(["sh", "-c", f"echo ran >> {ran}"])
        assert deck.wait(job.id, 30.0).status == "done"
        deck.submit(["sh", "-c", f"echo ran >> {ran}"], hold=True)
    kill_daemon()
    log = paths.store_file().with_name(f"{paths.store_file().name}-wal")
    log.unlink()
    with Client() as deck:
        assert [deck.job(number).status for number in (1, 2)] == ["done", "lost"]
        notices = eventually(lambda: [str(n) for n in deck.snapshot().notices if "store" in str(n)])
        assert notices[0].startswith(f"the newest changes of the store {paths.store_file()} are ")
        # On a slow machine a checkpoint may have come between the two jobs.
        if "all that it held of job 2" not in notices[0]:
            assert "all that it held of jobs 1 to 2" in notices[0]
            assert notices[0].endswith("Jobs recovered from what their attempts left: 1")
        new = deck.submit(["true"])
        assert new.id == 3 and deck.wait(new.id, 30.0).status == "done"
    assert ran.read_text() == "ran\n"
