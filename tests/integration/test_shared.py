"""Test one daemon for several users, with real users of this machine; only root can run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings, wire
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.jobs import turn
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.protocol.wait_reasons import UserGpus
from tests.integration.deck import ready
from tests.support import LACKS, eventually, state_folder

pytestmark = pytest.mark.xdist_group("shared daemon")
ROOT = Path(__file__).parents[2]
RUN = "".join(chr(ord("a") + int(digit)) for digit in str(os.getpid()))
"""Tells the users of this run from those of another one on this machine, at the same time."""
NAMES = (f"gpudeck-{RUN}-one", f"gpudeck-{RUN}-two")
GROUP = f"gpudeck-{RUN}"


def run(words, user, cwd="/", env=None, group=GROUP) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who is in one group only."""
    return subprocess.run(
        words, user=user, group=group, extra_groups=[], cwd=cwd, env=env,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def interpreter(name: str) -> list[str] | None:
    """A Python that another user can run, with our packages."""
    places = os.pathsep.join([str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        if python:
            words = ["env", f"PYTHONPATH={places}", python]
            check = [*words, "-c", "import gpudeck.app.cli.main, msgspec, psutil"]
            if run(check, name).returncode == 0:
                return words
    return None


class User:
    """A user of this machine, who runs commands."""

    def __init__(self, name: str, shared: Path) -> None:
        found = interpreter(name)
        if found is None:
            pytest.skip(f"{LACKS} a Python that other users can run")
        self.name, self.python, self.shared = name, found, shared
        self.home = shared.parent / name
        self.home.mkdir(mode=0o700)
        shutil.chown(self.home, name)
        self.uid = self.home.stat().st_uid

    def __call__(self, *words: str, status: int = 0, **env: str) -> str:
        """Run a command of gpudeck, and return what it printed."""
        done = self.run("-m", "gpudeck", *words, **env)
        assert done.returncode == status, (done.stdout, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the user's home folder, with an environment of their own."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), **env}
        own["GPUDECK_SHARED"] = str(self.shared)
        return run([*self.python, *words], self.name, cwd=self.home, env=own)

    def found(self, words: str) -> list[int]:
        """The numbers of the jobs that a search finds."""
        return [job["id"] for job in json.loads(self("jobs", "--json", "--search", words))]

    def submit(self, code: str, *options: str, **env: str) -> int:
        """Queue a line of sh, and return the job's number."""
        words = ("submit", "--json", *options, "--", "sh", "-c", code)
        return json.loads(self(*words, **env))["id"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """The state folder of a shared daemon, which reads the CPU."""
    if os.getuid() != 0 or not shutil.which("useradd"):
        pytest.skip(f"{LACKS} root, who starts processes of other users")
    made = ["groupadd", "-f", GROUP]
    subprocess.run(made, check=True)
    for name in NAMES:
        subprocess.run(["useradd", "-M", "-N", "-g", GROUP, "-s", "/bin/sh", name], check=True)
    place = Path(tempfile.mkdtemp(prefix="gpudeck-shared-", dir="/tmp"))
    place.chmod(0o711)
    try:
        with pytest.MonkeyPatch.context() as patch, state_folder(place / "state") as folder:
            patch.setenv("GPUDECK_SYSTEM", "1")
            patch.setenv("GPUDECK_GROUP", GROUP)
            settings.save(Settings(source="cpu", model_folder=TEMPLATE))
            with Client() as deck:
                ready(deck)
            yield folder
    finally:
        shutil.rmtree(place)
        for name in NAMES:
            subprocess.run(["userdel", name], check=True)
        subprocess.run(["groupdel", GROUP], check=False)


@pytest.fixture(scope="module")
def users(shared: Path) -> tuple[User, User]:
    return User(NAMES[0], shared), User(NAMES[1], shared)


@pytest.fixture
def root(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("GPUDECK_HOME", str(shared))
    monkeypatch.setenv("GPUDECK_SYSTEM", "1")
    with Client() as deck:
        yield deck


def ended(root: Client, job: int) -> str:
    return root.wait(job, 20).status


def test_a_job_runs_as_who_submitted_it_and_without_any_privilege(users, root):
    a, _ = users
    job = a.submit(
        "id -un; id -Gn; pwd; umask; grep -E 'Cap(Eff|Prm|Bnd)' /proc/self/status | head -2;"
        "echo '{\"x\": 1}' > $GPUDECK_RESULT; touch $GPUDECK_ARTEFACTS/mine; echo over >&2"
    )
    assert ended(root, job) == "done"
    lines = a("logs", str(job)).splitlines()
    assert lines[:3] == [a.name, GROUP, str(a.home)]
    assert [line.split()[1] for line in lines[4:6]] == ["0" * 16] * 2
    assert root.job(job).spec.user == a.uid
    assert json.loads(root.job(job).result or b"null") == {"x": 1}
    assert '"x"' in a("jobs", "--json", str(job))
    assert a.name in a("usage")


def test_nobody_reads_anothers_output_command_or_environment(users, root):
    a, b = users
    job = a.submit("echo secret-output; false", "--name", "training", SECRET="secret-variable")
    assert ended(root, job) == "failed"
    assert "secret-output" in a("logs", str(job))
    for words in (("logs", str(job)), ("note", str(job), "hello"), ("cancel", str(job))):
        assert "belongs to another user" in b(*words, status=1)
    assert "another user" in b("jobs", "--json", str(job), status=1)
    for text in (
        b("jobs", "--json"),
        b("status", "--json"),
        b("wait", "--json", str(job), status=1),
    ):
        assert "secret" not in text and str(a.home) not in text
    assert "training" in b("jobs"), "that it exists is seen"
    for words in ("secret-output", "false"):
        assert b.found(words) == [] and a.found(words) == [job], "no search tells what is hidden"
    # nor by their files
    folder = a.shared / "jobs" / str(job)
    files = ("log", "exit.json", "../../gpudeck.sqlite", "../../daemon.log")
    for path in (
        a.shared,
        folder.parent,
        folder,
        folder / "artefacts",
        *map(folder.joinpath, files),
    ):
        words = ["ls" if path.is_dir() else "cat", path]
        assert run(words, b.name).returncode != 0, path


def test_no_page_of_a_search_tells_what_another_users_jobs_hold(users, root):
    a, b = users
    job = a.submit("true 'key-1f7'", "--name", "x", "--tag", "key-1f7", "--hold")
    code = (
        "from gpudeck.scheduler.client import Client; from gpudeck.scheduler.protocol.search import"
        " Search; c = Client();"
        "print([c.page(Search(w), limit=1) for w in ('key-1f7', 'key-1f', 'key-2')])"
    )
    done = b.run("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[((), None), ((), None), ((), None)]"
    assert a.found("key-1f7") == [job]
    a("cancel", str(job))


def test_who_is_not_in_the_group_cannot_connect(users):
    code = f"import socket; socket.socket(1).connect('{users[0].shared}/daemon.sock')"
    done = run([*users[0].python, "-c", code], "nobody", group="nogroup")
    assert "PermissionError" in done.stderr


@pytest.mark.slow
def test_users_change_their_own_jobs_only(users, root):
    a, b = users
    first = a.submit("sleep 600", "--hold")
    second = a.submit("sleep 600", "--hold")
    numbers = (str(first), str(second))
    for words in (
        ("cancel", *numbers), ("cancel", f"1-{second}"), ("cancel", "--array", str(first)),
        ("edit", str(first), "--name", "x"), ("move", str(first), "--after", str(second)),
    ):  # fmt: skip
        assert "another user" in b(*words, status=1)
    assert {root.job(n).status for n in (first, second)} == {"queued"}
    a("cancel", str(first), str(second))
    assert {root.job(n).status for n in (first, second)} == {"cancelled"}


def test_what_an_administrator_put_on_hold_its_user_does_not_resume(users, root):
    a, _ = users
    waits = a.submit("true", "--hold")
    a("resume", str(waits), status=0)
    ended(root, waits)
    first, second = a.submit("true", "--hold"), a.submit("true", "--hold")
    root.hold(first)
    told = a("resume", str(first), status=1)
    assert f"an administrator put job {first} on hold" in told
    a("edit", str(first), "--notes", "why?")  # anything else is still its user's
    assert "only administrators release it" in root.job(first).state.reason
    root.stop_daemon()  # it is stored
    assert root.job(first).status == "queued"
    assert "an administrator put" in a("resume", str(first), status=1)
    root.hold(first, held=False)
    assert ended(root, first) == "done"
    a("cancel", str(second))


def test_nobody_gets_ahead_of_others_by_moving_jobs(users, root):
    a, b = users
    first, theirs, mine, more = (u.submit("true", "--hold") for u in (a, b, a, a))
    try:
        root.edit(theirs, priority=100)
        for where in ("--before", "--after"):
            assert "raise the priority" in a("move", str(mine), where, str(theirs), status=1)
        assert root.job(mine).spec.priority == 0
        root.edit(theirs, priority=0)
        for where, beside in (("--before", first), ("--after", first), ("--before", theirs)):
            told = a("move", str(mine), where, str(beside), status=1)
            assert f"would overtake job {theirs} of another user" in told
        a("move", str(more), "--before", str(mine))
        a("move", str(first), "--after", str(more))
        order = sorted((j for j in root.jobs(active=True)), key=turn)
        assert [job.id for job in order] == [theirs, more, first, mine]
        root.move(mine, before=theirs)
        assert sorted(root.jobs(active=True), key=turn)[0].id == mine
    finally:
        root.cancel_many([first, theirs, mine, more])


@pytest.mark.slow
def test_administration_is_for_administrators(users):
    a, _ = users
    reserve = ("reserve", "0", "--until", "+1h", "--group", "g")
    for words in (("pause",), ("drain", "0"), ("groups", "g", "--limit", "1"), reserve):
        assert "administrators only" in a(*words, status=1)
    assert "root only" in a("daemon", "stop", status=1)
    assert "root only" in a("host", "remove", "x", status=1)
    assert "not in clusters" in a("submit", "--on", "ray:x", "--", "true", status=1)
    assert "raise the priority" in a("submit", "--priority", "5", "--", "true", status=1)


def test_a_gpu_is_reserved_for_the_jobs_of_one_user(users, root):
    a, b = users
    now, (device, *_) = time.time(), ready(root).snapshot().devices
    made = root.reserve(Booking((device.device.id,), now, now + 3600, a.uid))
    assert a.name in b("reserve"), "everybody sees for whom it is"
    a("submit", "--gpus", "1", "--wait", "--", "true")
    told = b("submit", "--gpus", "1", "--", "true")
    assert f"reserved for {a.name}" in told
    assert "administrators only" in b("reserve", "cancel", str(made.number), status=1)
    root.cancel_booking(made.number)
    (waited,) = (job.id for job in root.snapshot().jobs if job.active)
    assert ended(root, waited) == "done"


def test_only_some_put_jobs_into_a_group_with_reserved_gpus(users, root):
    a, _ = users
    now, (device, *_) = time.time(), ready(root).snapshot().devices
    made = [
        root.reserve(Booking((device.device.id,), now + 3600 * i, now + 3600 * (i + 1), None, name))
        for i, name in enumerate(("gpudeck-team", GROUP))
    ]
    told = a("submit", "--group", "gpudeck-team", "--", "true", status=1)
    assert "reserved for the group gpudeck-team" in told
    waits = a.submit("true", "--hold")
    assert "reserved for" in a("edit", str(waits), "--group", "gpudeck-team", status=1)
    a("submit", "--array", "0-1", "--hold", "--group", GROUP, "--", "true")
    root.cancel_many([waits], group=GROUP)
    for each in made:
        root.cancel_booking(each.number)
    a("submit", "--wait", "--group", "gpudeck-team", "--", "true")


def test_a_request_cannot_choose_its_user(users, root):
    a, b = users
    code = (
        "import sys; from gpudeck.scheduler.client import Client;"
        "from gpudeck.scheduler.verbs.submit import *;"
        "import msgspec; c = Client(); spec = msgspec.structs.replace("
        "c.spec(['id', '-u'], {}), user=0); job = c.send(Submit(spec, 'same-token'));"
        "print(job.id, job.spec.user)"
    )
    found = []
    for user in (a, b):
        done = user.run("-c", code)
        assert done.returncode == 0, done.stderr
        found.append(tuple(map(int, done.stdout.split())))
    (job, uid), (other, other_uid) = found
    assert (uid, other_uid) == (a.uid, b.uid) and job != other, "tokens are of one user, too"
    assert ended(root, job) == "done" and root.log(job).split() == [str(a.uid).encode()]


@pytest.mark.slow
def test_a_folder_of_another_user_is_no_folder_of_the_job(users, root):
    a, b = users
    secret = b.home / "secret"
    secret.write_text("secret")
    shutil.chown(secret, b.name)
    code = (
        "from gpudeck.scheduler.client import Client; from gpudeck.scheduler.verbs.submit import *;"
        f"c = Client(); s = c.spec(['cat', 'secret'], {{'cwd': '{b.home}'}});"
        "Submit.check = lambda self: None; print(c.send(Submit(s)).id)"
    )
    job = int(a.run("-c", code).stdout)
    assert ended(root, job) == "failed"
    assert b"secret" not in root.log(job)


@pytest.mark.slow
def test_links_in_the_artefacts_are_not_followed(users, root, tmp_path):
    a, _ = users
    target = tmp_path / "root.json"
    target.write_text('{"root": "secret"}')
    job = a.submit(f"ln -s {target} $GPUDECK_RESULT")
    assert ended(root, job) == "done"
    assert root.job(job).result is None
    # the folder that holds it is not the user's, so that it cannot be replaced
    job = a.submit("rmdir $GPUDECK_ARTEFACTS; ln -s /etc $GPUDECK_ARTEFACTS; mv ../.. /tmp/x; true")
    assert ended(root, job) == "done"
    artefacts = a.shared / "jobs" / str(job) / "artefacts"
    assert artefacts.is_dir() and not artefacts.is_symlink()


@pytest.mark.slow
def test_limits_are_not_raised_for_a_user(users, root):
    a, _ = users
    job = a.submit("ulimit -Hc; nice; (ulimit -Hl 99999999) 2>&1 | head -1")
    assert ended(root, job) == "done"
    _, nice, *_ = root.log(job).decode().split()
    assert int(nice) >= 0


@pytest.mark.slow
def test_the_assistant_tells_the_jobs_of_one_user_from_those_of_another(users):
    ours, theirs = users
    mine = theirs.submit("true", "--name", "of-b", "--wait")
    try:
        said = ours("ask", "jobs", "of", theirs.name)
        assert f"job {mine} (of-b)" in said.lower() and said.startswith(f"{theirs.name}: ")
        assert "of-b" not in ours("ask", "show", "my", "jobs")
        assert (
            "no jobs are of a user called bob" in ours("ask", "GPU", "hours", "of", "bob").lower()
        )
    finally:
        for process in psutil.process_iter(["uids"]):  # the assistant waits for more questions
            if process.info["uids"].real == ours.uid:
                process.kill()
                process.wait(10)


FLOOD = """if True:
    import os, socket, sys, time
    def door():
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(os.environ["GPUDECK_SHARED"] + "/daemon.sock")
        return made
    what = sys.argv[1]
    if what == "connections":
        doors = [door() for _ in range(2100)]
        try:
            doors[-1].sendall(b'{"type":"snapshot"}\\n')
        except OSError:
            pass
        print(doors[-1].recv(200).decode().strip(), flush=True)
    if what == "halves":
        doors = [door() for _ in range(8)]
        for each in doors:
            each.settimeout(0.2)
            try:
                each.sendall(b"x" * 40_000_000)
            except TimeoutError:
                pass
        print("sent", flush=True)
    if what in ("replies", "leaves"):
        doors = []
        for _ in range(200):
            doors = [*doors, door()] if what == "replies" else [door()]
            doors[-1].sendall(b'{"type":"jobs","limit":1000}\\n' * 100)
        print("sent", flush=True)
    if what == "requests":
        doors = [door() for _ in range(400)]
        spec = b'{"argv":["true"],"name":"flood","cwd":"/","hold":true}'
        for each in doors:
            each.sendall(b'{"type":"submit","token":"","spec":%s}\\n' % spec * 50)
        print("sent", flush=True)
    time.sleep(float(sys.argv[2]))"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["connections", "halves", "replies", "leaves", "requests"])
def test_what_one_member_sends_does_not_stop_the_others(users, root, what):
    a, b = users
    pid = int((a.shared / "daemon.lock").read_text())
    if what in ("replies", "leaves"):
        a("submit", "--array", "0-499", "--hold", "--notes", "x" * 9000, "--", "true")
    before = psutil.Process(pid).memory_info().rss
    words = [*a.python, "-c", FLOOD, what, "600"]
    env = {"PATH": os.environ["PATH"], "GPUDECK_SHARED": str(a.shared)}
    flood = subprocess.Popen(
        words, user=a.name, group=GROUP, extra_groups=[], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert flood.stdout is not None
        told = flood.stdout.readline()
        assert ("too many connections" if what == "connections" else "sent") in told
        for _ in range(3):
            assert json.loads(b("status", "--json"))["devices"]
        assert root.snapshot().devices
        grown = psutil.Process(pid).memory_info().rss - before
        assert grown < 4 * wire.MAX_MESSAGE, f"{grown / 2**20:.0f} MiB"
    finally:
        flood.kill()
        flood.communicate()
    root.cancel_many([range(1, 10**6)])


@pytest.mark.slow
def test_lists_in_requests_are_limited(users):
    a, _ = users
    head = "from gpudeck.scheduler.client import Client; c = Client();"
    submit = f"{head} c.submit(['true'], hold=True, "
    for code, told in (
        (f"{submit}after=[1] * 5_000_000)", "has up to 1000000 values"),
        (f"{submit}after=[1] * 5000)", "after up to 1000 others"),
        (f"{submit}params=dict.fromkeys(map(str, range(5000)), ''))", "1000 parameters"),
        (f"{submit}gpus=1, gpu_type='h' * 10_000_000)", "up to 128 KiB"),
        (f"{head} c.cancel_many([range(1, 9999), range(1, 9999)])", "at most 10000 jobs"),
        (f"{head} c.restore(range(20_000))", "at most 10000 jobs"),
        (f"{head} c.history('cpu', ['util'] * 5000, 0, points=10_000)", "too much for one answer"),
    ):
        done = a.run("-c", code)
        assert done.returncode == 1 and told in done.stderr, done.stderr[-500:]
    code = f"{head} from gpudeck.scheduler.protocol.search import Search;"
    done = a.run("-c", f"{code} c.page(Search('x' * 10_000_000))")
    assert "up to 2000 characters" in done.stderr


def test_jobs_are_preemptible_by_their_group_or_their_user(users, root):
    a, b = users
    root.configure(preemptible_groups="night, sweeps")
    root.set_limits(a.name, UserLimits(preemptible=True))
    try:
        jobs = {
            "by its user": (a.submit("true", "--gpus", "1", "--hold"), True),
            "without a GPU": (a.submit("true", "--hold"), False),
            "of another user": (b.submit("true", "--gpus", "1", "--hold"), False),
            "by its group": (b.submit("true", "--gpus", "1", "--group", "night", "--hold"), True),
            "by its own word": (b.submit("true", "--gpus", "1", "--preemptible", "--hold"), True),
        }
        for which, (job, preemptible) in jobs.items():
            assert root.job(job).spec.preemptible is preemptible, which
        assert "preemptible" in b("limits")
    finally:
        root.configure(preemptible_groups="")
        root.set_limits(a.name, None)
        root.cancel_many([job for job, _ in jobs.values()])


def test_only_administrators_limit_users_and_the_reason_is_shown(users, root):
    a, b = users
    assert "administrators" in a("limits", a.name, "--gpus", "1", status=1)
    ready(root).set_limits(a.name, UserLimits(gpu_hours=0.001))
    try:
        assert a.name in b("limits")
        assert ended(root, a.submit("true")) == "done", "a job without a GPU is not limited"
        root.set_limits(a.name, UserLimits(gpus=1))
        first = a.submit("sleep 100", "--gpus", "1")
        second = a.submit("true", "--gpus", "1")
        eventually(lambda: root.job(first).status == "running")
        eventually(lambda: isinstance(root.job(second).state.wait, UserGpus))
        assert "the user's limit (1 of 1 GPUs held)" in a("jobs", str(second))
        root.set_limits(a.name, None)
        eventually(lambda: not isinstance(root.job(second).state.wait, UserGpus))
        a("cancel", str(first), str(second))
    finally:
        root.configure(limits={})


def test_each_user_is_told_by_a_process_of_their_own(users, root, hook):
    a, b = users
    code = (
        "from gpudeck.scheduler.client import Client;"
        "from gpudeck.scheduler.protocol.destinations import Destination;"
        f"Client().set_destination('here', Destination('webhook', '{hook.url}', ('fail',)))"
    )
    assert a.run("-c", code).returncode == 0
    assert "here" in a("notify") and "here" not in b("notify")
    assert "no destination here" in b("notify", "test", "here", status=1)
    assert "A test was sent" in a("notify", "test", "here")
    assert ended(root, b.submit("false")) == "failed"
    failed = a.submit("false")
    eventually(lambda: len(hook.got) == 2)
    assert (hook.got[1]["event"], hook.got[1]["job"]) == ("failed", failed)
    assert "s3cret" not in a("notify", "--json") + a("status", "--json")
    a("notify", "remove", "here")
