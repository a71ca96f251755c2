"""Stores that are really damaged: what `gpudeck doctor --repair` saves, says and keeps, and that
nothing runs twice after it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.wait_reasons import EnvironmentMissing
from gpudeck.scheduler.store import Store, repair
from tests.integration.deck import kill_daemon, log_of, python, running
from tests.integration.torture.faults import small_disk
from tests.support import eventually, state_folder

JOBS = 24
PAGE = 4096
pytestmark = pytest.mark.xdist_group("doctor")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of a daemon that was killed: ended jobs, one that waits, a group, and part
    of all that in the log alone."""
    folder = tmp_path_factory.mktemp("killed")
    with state_folder(folder / "home") as home:
        settings.save(Settings(source="cpu"))
        with Client() as deck:
            deck.set_group("night", limit=3, paused=True)
            specs = [
                make_spec(["true"], {"name": f"n{number}", "env": {}, "notes": "x" * 200 * number})
                for number in range(JOBS)
            ]
            for job in deck.submit_many(specs):
                deck.wait(job.id, 60.0)
            deck.stop_daemon()
        with Client() as deck:
            waits = deck.submit(["true"], hold=True, env={"TOKEN": "secret"}, name="waits")
            assert waits.id == JOBS + 1
            kill_daemon()
        yield Path(
            shutil.copytree(home, folder / "kept", ignore=shutil.ignore_patterns("daemon.*"))
        )


@pytest.fixture
def home(killed: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, whole."""
    with state_folder(tmp_path / "home") as folder:
        shutil.copytree(killed, folder)
        yield folder


def store_of(home: Path) -> list[int]:
    store = Store(home / "gpudeck.sqlite")
    try:
        return sorted(job.id for job in store.recent(10_000))
    finally:
        store.close()


def cut(home: Path, draw: random.Random) -> None:
    file = home / "gpudeck.sqlite"
    with file.open("r+b") as f:
        f.truncate(draw.randrange(file.stat().st_size))


def zero_pages(home: Path, draw: random.Random) -> None:
    file = home / "gpudeck.sqlite"
    with file.open("r+b") as f:
        for page in draw.sample(range(file.stat().st_size // PAGE), 4):
            f.seek(page * PAGE)
            f.write(bytes(PAGE))


def zero_the_first_page(home: Path, draw: random.Random) -> None:
    """And delete the log, which may hold another of it."""
    (home / "gpudeck.sqlite-wal").unlink()
    with (home / "gpudeck.sqlite").open("r+b") as f:
        f.write(bytes(PAGE))


def garble(home: Path, draw: random.Random) -> None:
    file = home / "gpudeck.sqlite"
    with file.open("r+b") as f:
        for _ in range(200):
            f.seek(draw.randrange(file.stat().st_size))
            f.write(draw.randbytes(1))


def garble_names(home: Path, draw: random.Random) -> None:
    """Of columns: what the file says of itself is bytes like any other."""
    for file in (home / "gpudeck.sqlite", home / "gpudeck.sqlite-wal"):
        file.write_bytes(file.read_bytes().replace(b"    submitted REAL", b"    sub|itted REAL"))


def cut_the_log(home: Path, draw: random.Random) -> None:
    log = home / "gpudeck.sqlite-wal"
    with log.open("r+b") as f:
        f.truncate(draw.randrange(log.stat().st_size // 2))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "damage", [cut, zero_pages, zero_the_first_page, garble, garble_names, cut_the_log]
)
def test_what_is_whole_is_saved_and_the_rest_is_named(
    home: Path, damage: Callable[[Path, random.Random], None], seed: int
) -> None:
    file = paths.store_file()
    damage(home, random.Random(f"{damage.__name__} {seed}"))
    spoilt = file.read_bytes()
    known = range(1, JOBS + 1)
    if not repair.examine(file, known):
        assert damage in (garble, cut_the_log), "that is damage"
        return
    assert file.read_bytes() == spoilt, "looking at it changed nothing"
    rescue = repair.rebuild(file, known)
    assert rescue.kept.read_bytes() == spoilt
    assert repair.examine(file, known) == ""
    saved = store_of(home)
    assert len(saved) == rescue.jobs
    assert sorted([*saved, *rescue.lost]) == list(range(1, JOBS + 2)), (
        "each is saved or said to be lost"
    )
    if damage is zero_the_first_page:
        assert saved == list(known), "the first page leads to the jobs, and holds none"


def test_a_job_that_waits_without_its_environment_is_named_and_held(home: Path) -> None:
    """Its row is whole, and what it was to run with is not: a variable of another value, which no
    JSON parser would notice."""
    store = Store(paths.store_file())  # takes over what the log has
    store.connection.execute("UPDATE environments SET env = replace(env, 'secret', 'sEcret')")
    store.close()
    known, waits = range(1, JOBS + 1), JOBS + 1
    assert (
        str(repair.examine(paths.store_file(), known))
        == f"the environment of job {waits} is lost or damaged"
    )
    assert repair.rebuild(paths.store_file(), known)[:3] == (waits, [], [waits])
    assert repair.examine(paths.store_file(), known) == ""
    with Client() as deck:
        deck.hold(waits, False)
        held = eventually(lambda: (job := deck.job(waits)).spec.hold and job)
        assert held.state.wait == EnvironmentMissing()
        assert deck.timeline(waits)[-1].what == "held"
        deck.stop_daemon()
    assert repair.examine(paths.store_file(), known) == ""


def test_on_a_full_disk_the_doctor_says_so_and_the_store_is_as_it_was(
    home: Path, tmp_path: Path
) -> None:
    zero_the_first_page(home, random.Random(0))
    spoilt = (home / "gpudeck.sqlite").read_bytes()
    try:
        with small_disk(tmp_path / "disk", "1m") as disk:
            file = Path(shutil.copy(home / "gpudeck.sqlite", disk))
            disk.chmod(0o700)
            with (disk / "ballast").open("wb", buffering=0) as f:
                while shutil.disk_usage(disk).free:
                    f.write(b"x" * 4096)
            for act in (repair.examine, repair.rebuild):
                with pytest.raises(UserError, match=r"(No space left on device|the disk is full)"):
                    act(file, range(1, JOBS + 1))
            assert file.read_bytes() == spoilt
    except PermissionError as e:
        pytest.skip(str(e))


def test_a_store_of_which_nothing_is_left_gives_no_number_twice(home: Path) -> None:
    for name in ("gpudeck.sqlite", "gpudeck.sqlite-wal"):
        (home / name).write_bytes(b"")
    known = range(1, JOBS + 1)
    assert "holds nothing" in str(repair.examine(paths.store_file(), known))
    rescue = repair.rebuild(paths.store_file(), known)
    assert (rescue.jobs, rescue.lost) == (0, [*known, JOBS + 1])
    with Client() as deck:
        assert deck.submit(["true"], env={}).id == JOBS + 2


def test_the_doctor_repairs_what_the_daemon_refuses_and_the_queue_goes_on(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zero_the_first_page(home, random.Random(0))
    with pytest.raises(UserError, match="See: gpudeck doctor"):
        Client()
    main(["doctor", "--repair"])
    said = capsys.readouterr().out
    assert f"{JOBS} jobs were saved" in said
    assert "The damaged file was kept" in said
    with Client() as deck:
        assert [job.status for job in deck.jobs(JOBS)] == ["done"] * JOBS
        assert deck.job(1).spec.name == "n0"
        assert deck.timeline(1)[0].what == "submitted"
        (group,) = deck.groups()
        assert (group.group.limit, group.group.paused) == (3, True)
        with (
            pytest.raises(UserError, match="the daemon has it"),
            hold_lock(paths.daemon_lock(), "the daemon has it"),
        ):
            pass


def test_a_job_whose_end_was_lost_with_the_log_does_not_run_again(
    cpu_home: Path, tmp_path: Path
) -> None:
    """Replace the store by one in which both wait, of which one ended and one runs since."""
    with Client() as deck:
        deck.pause()
        job = deck.submit(python("print('once')"), env={})
        runs_on = deck.submit(python("import time; print('once'); time.sleep(600)"), env={})
        deck.stop_daemon()  # the file has both as waiting
    before = paths.store_file().read_bytes()
    with Client() as deck:
        deck.pause(False)
        assert deck.wait(job.id, 30.0).status == "done"
        eventually(lambda: log_of(runs_on))
        before_kill = running(deck, runs_on)
        kill_daemon()
    paths.store_file().write_bytes(before)
    paths.store_file().with_name("gpudeck.sqlite-wal").unlink()
    with Client() as deck:
        deck.pause(False)
        assert deck.wait(job.id, 30.0).status == "done"
        assert running(deck, runs_on).runner == before_kill.runner
        deck.cancel(runs_on.id)
        assert deck.wait(runs_on.id, 30.0).status == "cancelled"
    assert (log_of(job), log_of(runs_on)) == ("once\n", "once\n")
