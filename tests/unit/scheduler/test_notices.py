"""Notices on their way to people: real servers that refuse, fail, hang, redirect or take them."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudeck.language.text import phrase
from gpudeck.scheduler.notices import courier
from gpudeck.scheduler.notices.book import DestinationBook
from gpudeck.scheduler.notices.courier import BURST, MAX_WAITING, Courier
from gpudeck.scheduler.notices.notice import (
    MOST_LINES,
    Action,
    Notice,
    booking_notice,
    job_notice,
)
from gpudeck.scheduler.notices.notifier import Notifier, Roles
from gpudeck.scheduler.notices.sender import Envelope, NotSent, send
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.destinations import (
    KINDS,
    MOST_DESTINATIONS,
    Destination,
    check_destination,
    host_of,
)
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Failed, Job, Lost, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert
from tests.desktop_session import FakeDesktop, session
from tests.hook import Hook
from tests.smtp import MailServer
from tests.support import eventually

NOTICE = Notice("fail", phrase("A test"), "<b>Text</b> & more", {"event": "test"}, urgent=True)


def deliver(destination: Destination, notices: int = 1, timeout: float = 20.0) -> list[str | None]:
    """Send notices, and return what the courier told about each."""
    said: list[str | None] = []

    async def run() -> None:
        one = Courier(destination, None, said.append, (0.0, 0.05), timeout)
        for _ in range(notices):
            one.send(NOTICE)
        while len(said) < notices:
            await asyncio.sleep(0.02)
        await one.stop()

    asyncio.run(run())
    return said


def at(hook: Hook, path: str, login: str = "") -> str:
    return f"http://{login}127.0.0.1:{hook.server.server_port}{path}"


def test_each_service_gets_what_it_reads(hook: Hook) -> None:
    assert deliver(Destination("ntfy", at(hook, "/lab_1", "me:p%40ss@"))) == [None]
    assert deliver(Destination("slack", at(hook, "/services/T/B/s3cret"))) == [None]
    assert deliver(Destination("discord", at(hook, "/api/webhooks/1/s3cret"))) == [None]
    assert deliver(Destination("telegram", at(hook, "/bot1:s/sendMessage?chat_id=-42"))) == [None]
    assert deliver(Destination("webhook", at(hook, "/hook?token=s"))) == [None]
    escaped = "A test\n&lt;b&gt;Text&lt;/b&gt; &amp; more"
    assert hook.got == [
        {"path": "/", "topic": "lab_1", "title": "A test", "message": "<b>Text</b> & more",
         "priority": 4, "tags": ["warning"]},
        {"path": "/services/T/B/s3cret", "text": escaped},
        {"path": "/api/webhooks/1/s3cret", "content": "A test\n<b>Text</b> & more",
         "allowed_mentions": {"parse": []}},
        {"path": "/bot1:s/sendMessage", "chat_id": "-42", "text": "A test\n<b>Text</b> & more"},
        {"path": "/hook?token=s", "title": "A test", "text": "<b>Text</b> & more",
         "event": "test"},
    ]  # fmt: skip
    assert hook.authorization == ["Basic bWU6cEBzcw==", None, None, None, None]


def test_a_mail_is_handed_to_a_server_that_asks_for_a_password() -> None:
    server = MailServer("p@ss")
    try:
        rest = f"127.0.0.1:{server.port}/?from=gpu@lab.org&to=me@lab.org&to=you@lab.org"
        assert deliver(Destination("mail", f"smtp://me:p%40ss@{rest}")) == [None]
        (mail,) = server.got
        assert (mail["From"], mail["To"]) == ("gpu@lab.org", "me@lab.org, you@lab.org")
        assert mail["Subject"] == "A test"
        assert mail.get_content().strip() == "<b>Text</b> & more"
        assert len(server.recipients) == 2
        (problem,) = deliver(Destination("mail", f"smtp://me:s3cret@{rest}"))
        assert problem == "the mail server refused the user or the password"
    finally:
        server.close()


def test_a_mail_server_that_answers_without_end_is_left() -> None:
    """Keep no more of an answer than a small process may hold."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            client, _ = listening.accept()
            with client, suppress(OSError):
                client.sendall(b"220 here\r\n")
                while True:
                    client.sendall((b"250-" + b"x" * 8000 + b"\r\n") * 100)

    thread = threading.Thread(target=serve)
    thread.start()
    address = f"smtp://127.0.0.1:{listening.getsockname()[1]}/?from=gpu@lab.org&to=me@lab.org"
    try:
        assert deliver(Destination("mail", address), timeout=60.0) == [
            "it sends an answer without end"
        ]
    finally:
        thread.join()
        listening.close()


def test_a_notice_is_tried_again_and_a_refusal_is_reported(hook: Hook) -> None:
    hook.answers = [503]
    assert deliver(Destination("webhook", hook.url)) == [None]
    assert len(hook.got) == 1
    hook.answers = [404, 404]
    assert deliver(Destination("webhook", hook.url)) == ["it answered 404 Not Found"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_to_another_server_is_followed(hook: Hook, status: int) -> None:
    other = Hook()
    try:
        hook.answers, hook.location = [status, status], other.url
        (problem,) = deliver(Destination("webhook", hook.url))
        assert other.requests == []
        assert problem is not None and "Name the address it redirects to" in problem
        assert "s3cret" not in problem
    finally:
        other.close()


def test_a_server_that_hangs_times_out(hook: Hook) -> None:
    hook.answers = [0, 0]
    assert deliver(Destination("webhook", hook.url), timeout=0.4) == ["no answer within 0.4 s"]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 500 \x1b[2J " + b"x" * 9000 + b"\r\n\r\n", "it answered 500"),
        (b"\0junk\r\n\r\n", "it cannot be used (BadStatusLine)"),
    ],
)  # fmt: skip
def test_what_a_hostile_server_says_is_short_and_controls_no_terminal(
    answer: bytes, problem: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(answer)

        threading.Thread(target=refuse).start()
        envelope = Envelope("webhook", f"http://127.0.0.1:{server.getsockname()[1]}/s3cret", NOTICE)
        with pytest.raises(NotSent) as refused:
            send(envelope, 20.0)
    said = str(refused.value)
    assert said.startswith(problem) and said.isprintable() and len(said) < 300


def test_a_text_controls_no_terminal(hook: Hook) -> None:
    reason = "cannot start 'x' in /tmp/\x1b]0;a\x07\u202e\r: Permission denied"
    notice = job_notice(ended(Failed(0.0, 60.0, reason)))
    send(Envelope("webhook", hook.url, notice), 20.0)
    (told,) = hook.got
    assert "Permission denied" in str(told["text"]) and str(told["text"]).isprintable()


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_a_sender_of_another_user_gets_no_variable_of_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROOTS_TOKEN", "s3cret")
    monkeypatch.setenv("https_proxy", "http://root:s3cret@proxy:1")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    script = "tr '\\0' '\\n' < /proc/self/environ; exit 1"
    monkeypatch.setattr(courier, "COMMAND", ("/bin/sh", "-c", script))
    nobody = pwd.getpwnam("nobody").pw_uid
    printed = asyncio.run(Courier(Destination("desktop"), nobody).attempt(NOTICE))
    assert "http_proxy=http://proxy:1" in printed.splitlines()
    assert "http_proxy=http://proxy:1" in printed and "s3cret" not in printed


def test_a_sender_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared daemon it belongs to a user, who may have it print anything."""
    monkeypatch.setattr(courier, "COMMAND", ("yes", "x"))
    problem = asyncio.run(Courier(Destination("desktop"), timeout=60.0).attempt(NOTICE))
    assert problem.startswith("x 60.0") and len(problem) <= courier.MOST_PRINTED


def test_a_user_sends_one_test_at_a_time(hook: Hook, tmp_path: Path) -> None:
    """Each test is a process, so that many at once would be in the way of others."""
    book = DestinationBook(tmp_path / "destinations.json")
    book.set(1, "slow", Destination("webhook", hook.url))
    book.set(1, "other", Destination("webhook", hook.url))
    roles = Roles(shared=False, is_admin=lambda uid: False, is_member=lambda uid, group: False)
    hook.answers = [0]

    async def send_two() -> None:
        notifier = Notifier(book, Settings, lambda *_: None, roles)
        first = asyncio.create_task(notifier.attempt(1, "slow"))
        while not hook.requests:
            await asyncio.sleep(0.01)
        with pytest.raises(UserError, match="another test of yours is being sent"):
            await notifier.attempt(1, "other")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await notifier.attempt(1, "other")
        await notifier.stop()

    asyncio.run(send_two())
    assert len(hook.got) == 1


def test_a_destination_names_each_event_once() -> None:
    many = {"kind": "desktop", "events": ["end"] * 5}
    with pytest.raises(msgspec.ValidationError, match="length <= 4"):
        msgspec.convert(many, Destination)


def test_an_unreachable_server_is_reported_without_the_secret() -> None:
    (told,) = deliver(Destination("webhook", "http://127.0.0.1:9/hook?token=s3cret"))
    assert told is not None and "refused" in told and "s3cret" not in told
    (told,) = deliver(Destination("webhook", "http://[::1/hook?token=s3cret"))
    assert told is not None and "cannot be used" in told and "s3cret" not in told


def test_many_notices_become_one_after_a_burst() -> None:
    sent: list[Notice] = []

    class Instant(Courier):
        async def attempt(self, notice: Notice, language: Any = "en") -> str:
            sent.append(notice)
            return ""

    async def storm() -> None:
        one = Instant(Destination("ntfy", "https://n.org/lab"), every=1.0)
        for number in range(BURST + MOST_LINES + 30):
            one.send(Notice("end", f"job {number}", ""))
        while len(sent) < BURST + 1:
            await asyncio.sleep(0.02)
        await one.stop()

    asyncio.run(storm())
    *single, last = sent
    assert [n.title for n in single] == [f"job {n}" for n in range(BURST)]
    assert str(last.title) == f"{MOST_LINES + 30} messages"
    lines = str(last.text).split("\n")
    assert lines[:2] == [f"job {BURST}", f"job {BURST + 1}"]
    assert lines[-1] == "and 30 more"
    assert len(lines) == MOST_LINES + 1


def test_a_webhook_gets_every_notice(hook: Hook) -> None:
    assert deliver(Destination("webhook", hook.url), notices=BURST + 3) == [None] * (BURST + 3)
    assert len(hook.got) == BURST + 3


def test_the_number_of_waiting_notices_is_bounded() -> None:
    said: list[str | None] = []

    async def storm() -> None:
        one = Courier(Destination("webhook", "http://127.0.0.1:9/"), None, said.append)
        for _ in range(MAX_WAITING + 5):
            one.send(NOTICE)
        assert len(one) == MAX_WAITING
        await one.stop()

    asyncio.run(storm())
    assert len(said) == 5


@pytest.mark.parametrize(
    ("name", "kind", "address"),
    [
        ("a b", "webhook", "https://h/x"), ("../x", "webhook", "https://h/x"),
        ("-x", "webhook", "https://h/x"), ("x", "webhook", "file:///etc/passwd"),
        ("x", "webhook", "ftp://h/x"), ("x", "webhook", "https:///x"), ("x", "webhook", ""),
        ("x", "webhook", "https://h/\r\nX: y"), ("x", "webhook", "https://h/a b"),
        ("x", "webhook", "https://h:99999/"), ("x", "webhook", "http://[::1/"),
        ("x", "webhook", "https://h/" + "a" * 3000), ("x", "ntfy", "https://n.org/"),
        ("x", "ntfy", "https://n.org/a/b"), ("x", "telegram", "https://h/bot1/sendMessage"),
        ("x", "mail", "smtp://h/?from=a@b"), ("x", "mail", "https://h/?from=a@b&to=c@d"),
        ("x", "mail", "smtp://h/?from=a@b%0D%0ABcc:e@f&to=c@d"),
        ("x", "mail", "smtp://h/?from=a@b&to=%00"),
        ("x", "desktop", "https://h/"),
    ],
)  # fmt: skip
def test_a_meaningless_destination_is_refused(name: str, kind: Any, address: str) -> None:
    with pytest.raises(UserError) as refused:
        check_destination(name, Destination(kind, address))
    assert not address or address not in str(refused.value)


def test_the_server_is_shown_without_login_path_and_query() -> None:
    assert host_of("smtps://me:p@mail.lab.org:465/?to=x") == "mail.lab.org"
    assert host_of("https://hooks.slack.com/services/secret?token=1") == "hooks.slack.com"
    assert host_of("http://[::1/") == ""


def ended(state: Any, notify: tuple[str, ...] = (), user: int | None = None) -> Job:
    return Job(7, Spec(("true",), "train\x1b[31m", "/", notify=notify, user=user), 0.0, state)


@pytest.mark.parametrize(
    ("state", "event", "title", "text"),
    [
        (Done(10.0, 14400.0), "end", "Job 7 succeeded: train", "It ran for 4 h on "),
        (Failed(0.0, 60.0, "exit status 1", 1), "fail", "Job 7 failed: train", "exit status 1"),
        (Failed(0.0, 1.0, "exit code 3: k=s3cret", 3, quote="k=s3cret"), "fail", "Job 7", "code 3"),
        (Lost(0.0, 60.0, "a power cut"), "fail", "Job 7 was lost: train", "a power cut"),
        (Cancelled(60.0), "end", "Job 7 was cancelled: train", "It had not started"),
    ],
)
def test_what_is_told_of_a_job(state: Any, event: str, title: str, text: str) -> None:
    notice = job_notice(ended(state))
    assert notice.event == event
    assert str(notice.title).startswith(title)
    assert "\x1b" not in str(notice.title)
    assert text in str(notice.text)
    assert notice.fields["job"] == 7
    assert notice.urgent == (event == "fail")
    assert "s3cret" not in f"{notice.text} {notice.fields}"


class Told(Courier):
    """Take the notices that a courier would send."""

    def __init__(self, destination: Destination, user: int | None, tell: Any) -> None:
        super().__init__(destination, user, tell)
        self.notices: list[Notice] = []

    def send(self, notice: Notice, language: Any = "en") -> None:
        self.notices.append(notice)


@pytest.fixture
def told() -> dict[str, Told]:
    return {}


Make = Callable[..., Notifier]


@pytest.fixture
def make(tmp_path: Path, told: dict[str, Told]) -> Make:
    def couriers(destination: Destination, user: int | None, tell: Any) -> Told:
        return told.setdefault(destination.address, Told(destination, user, tell))

    def notifier(entries: dict[int | None, dict[str, Destination]], **settings: str) -> Notifier:
        book = DestinationBook(tmp_path / "destinations.json")
        for user, mine in entries.items():
            for name, destination in mine.items():
                book.set(user, name, destination)
        shared = None not in entries
        roles = Roles(
            shared, lambda uid: uid == 0, lambda uid, group: (uid, group) == (5, "vision")
        )
        return Notifier(book, lambda: Settings(**settings), lambda *_: None, roles, couriers)

    return notifier


def events(told: dict[str, Told]) -> dict[str, list[Any]]:
    return {name: [n.fields["event"] for n in t.notices] for name, t in told.items() if t.notices}


def test_a_job_is_told_where_it_says_and_where_its_user_says(
    make: Make, told: dict[str, Told]
) -> None:
    notifier = make(
        {
            1: {"all": Destination("webhook", "all", ("end",)),
                "bad": Destination("webhook", "bad", ("fail",)),
                "asked": Destination("webhook", "asked", ())},
            2: {"asked": Destination("webhook", "other", ("end", "fail", "alert", "booking"))},
        }
    )  # fmt: skip
    notifier.job_ended(ended(Done(0.0, 1.0), user=1))
    notifier.job_ended(ended(Failed(0.0, 1.0, "no"), user=1))
    notifier.job_ended(ended(Cancelled(1.0), ("asked", "gone"), user=1))
    assert events(told) == {
        "all": ["done", "failed", "cancelled"], "bad": ["failed"], "asked": ["cancelled"],
    }  # fmt: skip
    notifier.check_names(1, ["asked"])
    with pytest.raises(UserError, match="no destination other"):
        notifier.check_names(1, ["other"])


def test_alerts_go_to_the_job_s_user_and_to_administrators(
    make: Make, told: dict[str, Told]
) -> None:
    every = ("end", "fail", "alert", "booking")
    notifier = make(
        {u: {"x": Destination("webhook", f"user {u}", every)} for u in (0, 1, 2)},
        webhook="https://h/",
    )
    notifier.alert_changed(Alert(1, "too hot", "GPU-0", None, "hot", 1.0, 2.0, None), None)
    notifier.alert_changed(Alert(2, "idle job", "GPU-0", 7, "idle", 1.0, 2.0, 3.0), 1)
    assert events(told) == {
        "https://h/": ["raised", "cleared"], "user 0": ["raised", "cleared"],
        "user 1": ["cleared"],
    }  # fmt: skip


def test_a_booking_is_told_once_when_it_begins(make: Make, told: dict[str, Told]) -> None:
    every = ("booking",)
    notifier = make({u: {"x": Destination("webhook", f"user {u}", every)} for u in (0, 1, 5)})
    now = time.time()
    bookings = {
        "1": Booking(("GPU-0",), now - 100, now + 100, 1),  # it had begun before
        "2": Booking(("GPU-0",), now + 0.05, now + 100, 1),
        "3": Booking(("GPU-1",), now + 0.05, now + 100, None, "vision"),
        "4": Booking(("GPU-2",), now + 0.05, now + 100),
        "5": Booking(("GPU-0",), now + 1000, now + 2000, 1),
    }
    while time.time() < now + 0.1:
        time.sleep(0.01)
    notifier.check_bookings(bookings, {"GPU-0": "H100"})
    notifier.check_bookings(bookings, {})
    numbers = {name: [n.fields["number"] for n in t.notices] for name, t in told.items()}
    assert numbers == {"user 1": [2], "user 5": [3], "user 0": [4]}
    assert "H100: kept for" in str(booking_notice("2", bookings["2"], ["H100"]).text)


def test_destinations_are_kept_private_and_limited(tmp_path: Path) -> None:
    file = tmp_path / "destinations.json"
    book = DestinationBook(file)
    book.set(None, "a", Destination("webhook", "https://h/s3cret"))
    book.set(1, "a", Destination("desktop"))
    assert file.stat().st_mode & 0o777 == 0o600
    again = DestinationBook(file)
    assert again.of(None) == {"a": Destination("webhook", "https://h/s3cret")}
    assert set(again.users()) == {None, 1}
    with pytest.raises(NotFound):
        again.set(2, "a", None)
    with pytest.raises(UserError, match="at most"):
        for n in range(MOST_DESTINATIONS + 1):
            again.set(1, f"n{n}", Destination("desktop"))
    file.write_text("[]")
    with pytest.raises(UserError, match="delete it") as refused:
        DestinationBook(file)
    assert "s3cret" not in str(refused.value)
    assert set(KINDS) >= {"ntfy", "slack", "discord", "telegram", "mail", "webhook", "desktop"}


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDesktop]:
    """Return a desktop on a real session bus."""
    yield from session(monkeypatch)


def test_the_desktop_shows_a_notice(desktop: FakeDesktop) -> None:
    assert deliver(Destination("desktop")) == [None]
    shown = desktop.next()
    assert shown == {
        "number": 1, "title": "A test", "text": "&lt;b>Text&lt;/b> &amp; more", "actions": [],
        "urgency": 2, "replaces": 0,
    }  # fmt: skip


def test_a_notice_that_is_chosen_opens_the_log_and_a_closed_one_leaves_no_process(
    desktop: FakeDesktop, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text("out of memory")
    action = Action(phrase("Open log"), file=str(log))
    notice = msgspec.structs.replace(NOTICE, actions=(action,))

    async def send() -> None:
        assert await Courier(Destination("desktop")).attempt(notice, "de") == ""

    asyncio.run(send())
    assert desktop.next()["actions"] == ["0", "Log öffnen"]
    desktop.choose(1, "0")
    assert desktop.next() == {"opened": "out of memory"}
    assert desktop.next()["text"] == str(log)
    asyncio.run(send())
    number = desktop.next()["number"]
    assert desktop.clients() == 1
    desktop.close(number)
    eventually(lambda: desktop.clients() == 0)


def test_a_missing_desktop_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    (problem,) = deliver(Destination("desktop"))
    assert problem is not None and "no desktop" in problem


def test_a_notice_is_written_in_the_language_of_its_reader(hook: Hook) -> None:
    async def run() -> str:
        courier = Courier(Destination("webhook", hook.url))
        return await courier.attempt(job_notice(ended(Done(0.0, 60.0))), "de")

    assert asyncio.run(run()) == ""
    assert str(hook.got[0]["title"]).startswith("Job 7 war erfolgreich: train")
    assert str(hook.got[0]["text"]).startswith("Er lief 1 min auf ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of other users")
def test_a_sender_becomes_its_user_for_good_and_hides_its_memory() -> None:
    code = (
        "import os, ctypes; from gpudeck.scheduler.notices.sender import _become; _become(65534);"
        "print(os.getresuid(), os.getgroups(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(65534, 65534, 65534) ")
    assert "[0]" not in done.stdout
    assert done.stdout.split()[-1] != "1", "the user could read what root's process holds"
