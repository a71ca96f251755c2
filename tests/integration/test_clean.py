"""Test gpudeck clean with a real daemon and real jobs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.app.cli.main import main
from gpudeck.assistant.housekeeping import ScanMonitor, move_to_trash, scan
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import python, ready, running
from tests.support import eventually, lives, state_folder
from tests.unit.assistant.debris import aged, write

WAIT_S = 60.0


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Yield a client of a daemon whose user has a new home folder."""
    folder = tmp_path_factory.mktemp("clean")
    with pytest.MonkeyPatch.context() as patch, state_folder(folder / "state"):
        for name in (
            "TRITON_CACHE_DIR",
            "TRITON_HOME",
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
            "HF_HOME",
            "HF_HUB_CACHE",
            "CUDA_CACHE_PATH",
        ):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(folder))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        settings.save(Settings(source="cpu", clean_memory="off"))
        with Client() as client:
            yield ready(client)


@pytest.fixture
def kernel(deck: Client) -> Path:
    """Return a compiled kernel that was last used long ago."""
    folder = Path.home() / ".triton" / "cache" / "KERNEL \x1b[31m"
    write(folder / "a.cubin", b"x" * 2**21)
    return aged(folder, 60)


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(words) == status
    out, err = capsys.readouterr()
    return err if status else out


def answered(answer: str, *words: str) -> str:
    """Return what a command writes on a terminal on which a user answers its question."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "gpudeck", *words])
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(fd, 65536)
        os.write(fd, answer.encode() + b"\n")
        while True:
            seen += os.read(fd, 65536)
    except OSError:
        pass  # the terminal is closed
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return seen.decode()


def test_clean_lists_asks_and_can_be_undone(
    kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clean"]) == 1, "nothing was moved, as there is nobody to ask"
    out, err = capsys.readouterr()
    assert "Kernel cache  2.00 MiB  60 days  ~/.triton/cache/KERNEL \\x1b[31m" in out
    assert "Nothing was moved. There is no terminal to ask on" in err
    assert "Nothing was moved." in answered("n", "clean")
    assert kernel.exists()
    shown = answered("y", "clean", "--kind", "cache,log")
    assert "Move 1 item, 2.00 MiB, to the trash? [y/N]" in shown
    assert "Moved 1 item, 2.00 MiB, to the trash." in shown
    assert "\x1b[31m" not in shown, "a file's name steers no terminal"
    assert not kernel.exists()
    assert printed(capsys, "clean") == "There is nothing to clean up.\n"
    assert printed(capsys, "clean", "--undo") == "Restored 1 item, 2.00 MiB.\n"
    assert (kernel / "a.cubin").stat().st_size == 2**21
    assert "holds nothing from a cleanup" in printed(capsys, "clean", "--undo", status=1)
    assert printed(capsys, "clean", "--empty") == "The trash holds nothing from a cleanup.\n"


def test_json_output_moves_files_only_with_yes(
    kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> Any:
        return json.loads(printed(capsys, "clean", "--json", *words))

    [find] = told()["finds"]
    assert (find["kind"], find["place"]) == ("cache", str(kernel).replace(" \x1b[", "%20%1B%5B"))
    assert kernel.exists()
    moved = told("--yes")
    assert [m["path"] for m in moved["moved"]] == [find["path"]]
    assert told("--undo", moved["id"])["restored"][0]["path"] == find["path"]
    told("--yes")
    assert "--yes" in printed(capsys, "clean", "--json", "--empty", status=2)
    assert told("--empty", "--older-than", "1h")["items"] == 0
    assert told("--empty", "--yes") == {"items": 1, "bytes": moved["bytes"], "left": []}
    assert "it was undone, or the trash was emptied" in printed(
        capsys, "clean", "--undo", moved["id"], status=1
    )


def test_files_of_ended_jobs_are_moved_but_not_those_of_running_jobs(deck: Client) -> None:
    goes_on = deck.submit(
        python(
            "import sys; print('here', flush=True); sys.stdin.read(); import time; time.sleep(600)"
        )
    )
    ended = deck.submit(
        python(
            "import os; print('done'); open(os.environ['GPUDECK_ARTEFACTS'] + '/a', 'w').write('a')"
        )
    )
    assert deck.wait(ended.id, WAIT_S).status == "done"
    running(deck, goes_on.job)
    logs = [paths.job_folder(job.id) / "log" for job in (goes_on, ended)]
    for log in logs:
        eventually(lambda log=log: log.stat().st_size)
        aged(log.parent, 400)
    finds = [
        find for find in scan(deck) if find.kind in ("log", "artefacts")
    ]  # other tests leave other debris
    assert sorted(find.path for find in finds) == [logs[1].parent / "artefacts", logs[1]]
    assert f"of job {ended.id} (" in str(finds[0].reason)
    eventually(
        lambda: not move_to_trash(deck, [find for find in finds if find.path.exists()]).left
    )  # once its runner has ended, too
    assert deck.log(ended.id) == b""
    assert deck.artefacts(ended.id) == []
    deck.cancel(goes_on.id)


def test_files_named_at_the_end_of_a_long_command_are_kept(deck: Client, tmp_path: Path) -> None:
    """Lists hold only the beginning of a long command."""
    dumps = [
        write(tmp_path / "work" / f"core.{i}", b"\x7fELF\x02\x01" + bytes(10) + b"\x04\x00", 10)
        for i in range(2)
    ]
    (tmp_path / "elsewhere").mkdir()
    deck.wait(deck.submit(["true"], cwd=str(tmp_path / "work")).id, WAIT_S)
    finds = [find for find in scan(deck) if find.kind == "core"]
    assert sorted(find.path for find in finds) == dumps
    job = deck.submit(
        ["gdb", *("x" * 100 for _ in range(100)), str(dumps[0])],
        cwd=str(tmp_path / "elsewhere"),
        hold=True,
    )
    assert [find.path for find in scan(deck) if find.kind == "core"] == dumps[1:]
    assert [str(left.why) for left in move_to_trash(deck, finds).left] == [f"job {job.id} needs it"]
    deck.cancel(job.id)


ORPHAN = """
import sys, os
node = open(sys.argv[1] + '/dev/nvidia0', 'w')
open(sys.argv[1] + '/new', 'w').write(str(2**30))
os.rename(sys.argv[1] + '/new', f'{sys.argv[1]}/{os.getpid()}')
print('on it', flush=True)
sys.stdin.read()
"""


def test_a_process_that_a_job_left_on_a_gpu_is_listed_and_can_be_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The GPU is simulated; process, daemon and probe are real."""
    gpu, here = tmp_path / "gpu", Path(__file__).parent
    (gpu / "dev").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch, state_folder(tmp_path / "home"):
        patch.setenv("FAKE_GPU", str(gpu))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(here / "fake_gpu"), str(here.parents[1])]))
        settings.save(
            Settings(source="nvml", telemetry_hz=10.0, clean_memory="off", clean_caches="off")
        )
        with Client() as deck:
            ready(deck)
            job = deck.submit(["true"])
            deck.wait(job.id, WAIT_S)
            of_job = {
                "GPUDECK_JOB": str(job.id),
                "GPUDECK_ARTEFACTS": str(paths.job_folder(job.id) / "artefacts"),
            }
            command = [sys.executable, "-S", "-c", ORPHAN, str(gpu)]
            with subprocess.Popen(
                command, env={**os.environ, **of_job}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                [find] = eventually(lambda: scan(deck, ScanMonitor()))
                assert (find.kind, find.bytes) == ("process", 2**30)
                assert str(find.reason).endswith(
                    f"holds a GPU for job {job.id}, which has ended (done)"
                )
                assert "gpudeck kill" in str(move_to_trash(deck, [find]).left[0].why)
                assert f"to end process {process.pid}: gpudeck kill {process.pid}" in printed(
                    capsys, "clean", "--yes"
                )
                assert lives(process.pid)
                assert find.process is not None
                deck.kill(find.process)
                assert not lives(process.pid)
            assert scan(deck) == ()
