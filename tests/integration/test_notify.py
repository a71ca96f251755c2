"""People are told by the real daemon, and no listing shows the address that it uses."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.destinations import Destination
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from tests.hook import Hook
from tests.integration.deck import kill_daemon, ready, running
from tests.integration.shell import Shell
from tests.support import eventually


def add(hook: Hook, *words: str) -> int:
    """Run `gpudeck notify add` with the address on standard input, as its help says."""
    command = [sys.executable, "-m", "gpudeck", "notify", "add", *words]
    return subprocess.run(command, input=f"{hook.url}\n", text=True, check=False).returncode


def test_the_end_of_a_job_is_told_also_after_a_crash_of_the_daemon(
    alone: Shell, hook: Hook, capsys: pytest.CaptureFixture[str]
) -> None:
    assert add(hook, "here", "webhook", "--for", "fail") == 0
    assert main(["notify", "test", "here"]) == 0
    assert [m["event"] for m in hook.got] == ["test"]
    with Client() as deck:
        ready(deck).submit(["true"])
        bad = deck.submit(["sh", "-c", "echo printed-key; exit 3"], name="bad")
        eventually(lambda: len(hook.got) == 2)
        assert (hook.got[1]["event"], hook.got[1]["job"]) == ("failed", bad.id)
        assert "printed-key" in str(deck.job(bad.id).state.reason)  # type: ignore[union-attr]
        assert hook.got[1]["reason"] == "exit code 3" and "printed-key" not in str(hook.got)
        runs = deck.submit(["sleep", "1"], name="told", notify=["here"])
        running(deck, deck.job(runs.id))
        with pytest.raises(UserError, match="no destination nowhere"):
            deck.submit(["true"], notify=["nowhere"])
        with pytest.raises(UserError, match="no destination nowhere"):
            deck.edit(runs.id, notify=("nowhere",))
    kill_daemon()
    with Client() as deck:
        eventually(lambda: len(hook.got) == 3)
        told = hook.got[2]
        assert (told["event"], told["job"], told["name"]) == ("done", runs.id, "told")
        assert str(told["title"]) == f"Job {runs.id} succeeded: told"
        late = deck.submit(["sleep", "1"])
        running(deck, deck.job(late.id))
        deck.edit(late.id, notify=("here",))
        eventually(lambda: len(hook.got) == 4)
        assert hook.got[3]["job"] == late.id


def test_no_listing_shows_an_address(
    alone: Shell, hook: Hook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.answers = [500]
    assert add(hook, "here", "webhook", "--for", "end,fail,alert,booking") == 0
    with Client() as deck:
        deck.configure(webhook=hook.url)
        ready(deck).submit(["true"], notify=["here"]).wait()
        eventually(lambda: len(hook.got) == 1)
    for command in (["notify"], ["notify", "--json"], ["status", "--json"], ["jobs", "--json"],
                    ["jobs", "1", "--json"], ["diagnostics"], ["settings"]):  # fmt: skip
        assert main(command) == 0
    printed = capsys.readouterr().out
    assert "127.0.0.1" in printed and "here" in printed
    assert "s3cret" not in printed
    assert "s3cret" not in paths.daemon_log().read_text()
    assert "s3cret" not in (paths.job_folder(1) / "log").read_text()
    assert paths.destinations_file().stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(sys, "stdin", io.StringIO("ftp://s3cret/\n"))
    assert main(["notify", "add", "wrong", "webhook"]) == 1
    assert "s3cret" not in capsys.readouterr().err


def test_a_destination_that_cannot_be_reached_is_reported(
    alone: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as deck:
        deck.set_destination("gone", Destination("webhook", "http://127.0.0.1:9/s3cret"))
    assert main(["notify", "test", "gone"]) == 1
    said = capsys.readouterr().err
    assert "nothing was sent to gone: it cannot be reached" in said and "s3cret" not in said
    assert main(["notify", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["problem"].startswith("it cannot be reached")
    assert main(["notify", "remove", "gone"]) == 0
    assert main(["notify", "remove", "gone"]) == 1
    with Client() as deck, pytest.raises(NotFound):
        deck.try_destination("gone")


@pytest.mark.parametrize(
    "words", [["add"], ["add", "phone"], ["add", "phone", "pigeon"],
              ["add", "phone", "ntfy", "--for", "weather"]],
)  # fmt: skip
def test_a_usage_error_says_what_is_missing(alone: Shell, words: list[str]) -> None:
    assert "gpudeck" in alone("notify", *words, status=2)
