"""Torture the queue briefly; `make torture` does it at length."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import answers, daemon_pid, kill_daemon
from tests.integration.torture.campaign import Campaign
from tests.integration.torture.damage import DAMAGES, sound_stores, verdict
from tests.integration.torture.faults import detach, small_disk
from tests.integration.torture.parts import older
from tests.integration.torture.plan import rounds
from tests.integration.torture.verdict import NEVER_RAN, Evidence, LedgerLine, StoredJob, violations
from tests.integration.torture.witness import processes_with
from tests.support import LACKS, eventually, state_folder

SEED = 4


def test_faults_of_every_kind_lose_no_job_and_run_none_twice(
    cpu_home: Path, tmp_path: Path
) -> None:
    campaign = Campaign(tmp_path / "torture")
    assert campaign.run(rounds(SEED, 21)) == []
    assert campaign.injected.total() >= 14, (
        f"too few faults struck for a verdict: {campaign.injected}"
    )
    assert len(campaign.acknowledged) >= 26


@pytest.mark.slow
def test_a_disk_that_is_full_again_and_again_loses_no_job(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk") as disk, state_folder(disk / "home"):
            settings.save(Settings(source="cpu"))
            campaign = Campaign(tmp_path / "torture")
            assert campaign.run(rounds(SEED, 16, "small disk")) == []
            assert campaign.injected["disk full"] >= 1
    except PermissionError as e:
        pytest.skip(str(e))


def test_many_jobs_at_once_all_run_once(cpu_home: Path, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "torture")
    assert campaign.crowd(24, kills=1) == []
    assert len(campaign.acknowledged) == 24


def test_a_flood_of_output_disturbs_no_other_job(cpu_home: Path, tmp_path: Path) -> None:
    assert Campaign(tmp_path / "torture").flood(200 * 2**20) == []


def test_a_daemon_killed_before_it_releases_a_runner_runs_the_job_after_its_restart(
    cpu_home: Path, tmp_path: Path
) -> None:
    """Kill the daemon after it committed the runner and before it released it: nothing ran."""
    campaign = Campaign(tmp_path / "torture")
    with campaign.sabotaged():
        with Client() as deck:
            deck.pause()
            job = campaign.submit("quick")
            assert job is not None
            campaign.arm("daemon", "before the gate opens", 1)
            campaign.insist(lambda deck: deck.pause(False))
            eventually(lambda: not (campaign.folder / "plan").exists())
        assert campaign.settle() == []
    assert campaign.injected["daemon: before the gate opens"] == 1


@pytest.mark.parametrize(
    "at", [pytest.param("before COMMIT", marks=pytest.mark.slow), "after COMMIT"]
)
def test_a_daemon_killed_while_it_cancels_many_has_cancelled_all_or_none(
    cpu_home: Path, tmp_path: Path, at: str
) -> None:
    """Cancel again, and kill the daemon again: no job is lost, runs on or runs again."""
    campaign, runs = Campaign(tmp_path / "torture"), tmp_path / "runs"
    job = ["sh", "-c", f"echo $GPUDECK_JOB >> {runs}; sleep 600; :"]
    with campaign.sabotaged():
        with Client() as deck:
            eventually(lambda: deck.snapshot().devices)
            array = deck.submit_array(job, range(12), memory=2**20)
            held = deck.submit_array(job, range(6), hold=True)
            ids = [one.id for one in (*array, *held)]
            eventually(lambda: runs.exists() and len(runs.read_text().split()) == len(array))
            campaign.arm("daemon", at, 1)
            with pytest.raises(DaemonGone):
                deck.cancel_many([range(ids[0], ids[-1] + 1)])
        eventually(lambda: not answers())
        with Client() as deck:
            stands = Counter(one.status for one in deck.jobs(100) if one.id in ids[len(array) :])
            assert stands == {"cancelled" if at == "after COMMIT" else "queued": len(held)}
            deck.cancel_many([range(ids[0], ids[-1] + 1)])
        kill_daemon()
        with Client() as deck:
            assert {deck.wait(number, 60.0).status for number in ids} == {"cancelled"}
    assert sorted(map(int, runs.read_text().split())) == [one.id for one in array], (
        "each once, and those that were held never"
    )
    assert not processes_with(str(runs))


@pytest.mark.slow
def test_damaged_stores_are_served_or_refused_in_one_line(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    sound = sound_stores(tmp_path)
    for how in DAMAGES:
        answer, words = verdict(sound, tmp_path / how, how, draw)
        assert answer not in ("crashes", "deceives"), f"{how}: {words}"


@pytest.mark.parametrize(
    ("column", "value"),
    [("spec", "'{'"), ("spec", "CAST(x'7bff' AS TEXT)"), ("spec", "NULL"), ("state", "'{}'")],
    ids=["cut", "utf-8", "null", "type"],
)
def test_a_garbled_job_is_reported_in_one_line(cpu_home: Path, column: str, value: str) -> None:
    with Client() as deck:
        deck.wait(deck.submit(["true"], env={}).id, 30.0)
        deck.stop_daemon()
    with contextlib.closing(sqlite3.connect(paths.store_file())) as db, db:
        db.execute("PRAGMA writable_schema = ON")  # past NOT NULL, as a broken disk is
        db.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'jobs'"
        )
    with contextlib.closing(sqlite3.connect(paths.store_file())) as db, db:
        db.execute(f"UPDATE jobs SET {column} = {value}")
    with pytest.raises(UserError, match=r"damaged.*doctor") as caught, Client() as deck:
        deck.jobs()
    assert "\n" not in str(caught.value)


def test_a_store_of_an_older_version_is_opened_and_its_jobs_run(tmp_path: Path) -> None:
    outcome = older(tmp_path / "older", SEED)
    assert outcome.violations == []
    assert outcome.ran == 3


@pytest.mark.skipif(
    shutil.which("strace") is None,
    reason=f"{LACKS} strace, which shows the daemon's system calls. Install it: apt install strace",
)
def test_no_job_is_acknowledged_before_it_is_synced(cpu_home: Path, tmp_path: Path) -> None:
    """Check that each answer follows an fdatasync of its own, as no power cut can be made here."""
    calls = tmp_path / "calls"
    with Client() as deck:
        deck.pause()
        watch = [
            "strace",
            "-f",
            "-qq",
            "-s",
            "30",
            "-o",
            str(calls),
            "-e",
            "trace=fdatasync,sendto",
            "-p",
            str(daemon_pid()),
        ]
        strace = subprocess.Popen(watch, stderr=subprocess.DEVNULL)
        eventually(
            lambda: (
                calls.exists()
                and "TracerPid:\t0" not in Path(f"/proc/{daemon_pid()}/status").read_text()
            )
        )
        for _ in range(10):
            deck.submit(["true"], env={})
        detach(strace)
    synced, answers = False, 0
    for line in calls.read_text().splitlines():
        if "fdatasync(" in line and line.endswith("= 0"):
            synced = True
        elif r"{\"type\":\"value\"" in line:
            assert synced, "an answer went out before its job was on disk"
            synced, answers = False, answers + 1
    assert answers == 10


GOOD = Evidence(
    {1: "quick", 2: "stubborn"},
    frozenset(),
    {1: StoredJob("quick", "done"), 2: StoredJob("stubborn", "cancelled")},
    [LedgerLine(1, "a")],
    [],
)
ONE, AGAIN = LedgerLine(1, "a"), LedgerLine(1, "b")


def family(parent: str, child: str, kind: str = "child") -> dict[int, StoredJob]:
    """Return a parent and one job after it, with these ends."""
    after = {"after": (1,)} if kind == "child" else {"after_any": (1,)}
    return {1: StoredJob("quick", parent), 2: StoredJob(kind, child, **after)}  # type: ignore[arg-type]


NARROWS = {number: StoredJob("narrow", "done") for number in (1, 2, 3)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"store": {1: GOOD.store[1]}}, ["job 2 (stubborn) was acknowledged and is lost"]),
        ({"ledger": [ONE, AGAIN]}, ["job 1 ran 2 times"]),
        ({"ledger": [ONE, AGAIN], "excused": frozenset({1})}, ["job 1 ran 2 times"]),
        ({"ledger": []}, ["job 1 (quick) is done and never ran"]),
        ({"ledger": [ONE, ONE]}, ["attempt a of job 1 ran 2 times", "job 1 ran 2 times"]),
        ({"ledger": [ONE, AGAIN], "store": {**GOOD.store, 1: StoredJob("flaky", "done")}}, []),
        ({"ledger": [ONE, LedgerLine(7, "a")]}, ["job 7 ran and is not in the store"]),
        ({"orphans": ["sleep 600"]}, ["left behind: sleep 600"]),
        (
            {"store": {**GOOD.store, 1: StoredJob("quick", "running")}},
            ["job 1 (quick) never ended: running"],
        ),
        (
            {"store": {**GOOD.store, 1: StoredJob("quick", "lost")}},
            ["job 1 (quick) is lost, and nobody touched its runner"],
        ),
        (
            {"store": {**GOOD.store, 1: StoredJob("quick", "lost")}, "ledger": []},
            [f"job 1 (quick) {NEVER_RAN}"],
        ),
        ({"store": {**GOOD.store, 1: StoredJob("quick", "lost")}, "excused": frozenset({1})}, []),
        (
            {"store": {**GOOD.store, 1: StoredJob("overtime", "running")}},
            ["job 1 (overtime) never ended: running"],
        ),
        (
            {"store": {**GOOD.store, 1: StoredJob("overtime", "done")}},
            ["job 1 (overtime) is done, and nobody touched its runner"],
        ),
        (
            {
                "store": family("done", "done"),
                "ledger": [ONE, LedgerLine(1, "a", True), LedgerLine(2, "b")],
            },
            [],
        ),
        (
            {
                "store": family("done", "done"),
                "ledger": [ONE, LedgerLine(2, "b"), LedgerLine(1, "a", True)],
            },
            ["job 2 ran before job 1 had ended"],
        ),
        (
            {"store": family("done", "done", "follower"), "ledger": [LedgerLine(2, "b"), ONE]},
            ["job 2 ran before job 1 had ended"],
        ),
        ({"store": family("cancelled", "cancelled"), "excused": frozenset({1})}, []),
        (
            {
                "store": family("failed", "done"),
                "ledger": [ONE, LedgerLine(2, "b")],
                "excused": frozenset({1, 2}),
            },
            ["job 2 (child) ran, and what it was to run after did not succeed"],
        ),
        (
            {
                "store": NARROWS,
                "ledger": [ONE, LedgerLine(2, "b"), LedgerLine(1, "a", True), LedgerLine(3, "c")],
            },
            [],
        ),
        (
            {
                "store": NARROWS,
                "ledger": [ONE, LedgerLine(2, "b"), LedgerLine(3, "c"), LedgerLine(1, "a", True)],
            },
            ["3 jobs of a group with limit 2 ran at once: [1, 2, 3]"],
        ),
    ],
)
def test_the_verdict_finds_each_violation(change: dict[str, object], words: list[str]) -> None:
    assert violations(GOOD._replace(**change)) == words  # type: ignore[arg-type]


def test_a_seed_plans_the_same_faults_and_all_kinds_of_them() -> None:
    assert rounds(1, 200) == rounds(1, 200) != rounds(2, 200)
    assert len(Counter(r.fault[:2] for r in rounds(1, 31))) >= 28
