"""What the client refuses by itself, and a daemon of another version, played by a socket that
answers in its own words."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Changes, Done, Job, Spec
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.verbs.change import Cancel, Edit
from gpudeck.scheduler.verbs.registry import decoding
from gpudeck.scheduler.verbs.request import encode_reply, encode_request
from gpudeck.scheduler.verbs.submit import Foresee, Submit, SubmitMany

JOB = Job(7, Spec(("true",), "true", "/"), 0.0, Done(0.0, 1.0))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bytes]]:
    """Yield a list for the reply of a fake daemon to one request."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    answers: list[bytes] = []
    with wire.listen(paths.daemon_socket()) as listening:

        def serve() -> None:
            peer, _ = listening.accept()
            with peer, peer.makefile("rb") as lines:
                if lines.readline():
                    peer.sendall(answers[0] + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield answers
        thread.join(10)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"value"}',
        b'{"type":"job","job":{}}',
        b'{"type":"what comes in ten years"}',
        b"words",
        b"\xff",
    ],
)
def test_a_reply_of_another_version_is_reported(answer: list[bytes], line: bytes) -> None:
    answer.append(line)
    with Client(start=False) as deck, pytest.raises(UserError, match="another version of GPU Deck"):
        deck.job(1)


def test_a_snapshot_of_another_version_is_reported(answer: list[bytes]) -> None:
    answer.append(b'{"type":"value","value":{}}')
    with Client(start=False) as deck, pytest.raises(UserError, match="another version of GPU Deck"):
        next(deck.subscribe())


@pytest.mark.parametrize(
    "request_of_another_version",
    [
        b'{"type":"submit","spec":{"argv":["true"],"name":"x","cwd":"/","hold":true,"only_at_full_moon":true}}',
        b'{"type":"submit_many","specs":[{"argv":["true"],"name":"x","cwd":"/"},{"argv":["true"],"name":"x","cwd":"/","planet":"Mars"}]}',
        b'{"type":"foresee","spec":{"argv":["true"],"name":"x","cwd":"/","planet":"Mars"}}',
        b'{"type":"edit","job":1,"changes":{"name":"x","planet":"Mars"}}',
        b'{"type":"find","search":{"planet":"Mars"}}',
        b'{"type":"cancel","job":1,"but_let_its_children_live":true}',
        b'{"type":"what comes in ten years"}',
    ],
)
def test_a_request_with_an_unknown_field_is_refused(
    request_of_another_version: bytes,
) -> None:
    """A job must not run without what was asked for."""
    with pytest.raises(
        UserError,
        match=(
            r"^this daemon does not know the request: .*\. Client and daemon may differ in version"
        ),
    ):
        finish(decoding(request_of_another_version))


def test_encoded_requests_are_decoded_unchanged() -> None:
    spec = Spec(
        ("true",), "true", "/", {"A": "b"}, params={"seq": "128"}, after=(1,), tags=("a",), index=3
    )
    for request in (
        Submit(spec),
        SubmitMany((spec, spec), {"C": "d"}),
        Foresee(spec),
        Edit(1, Changes(hold=True)),
        Cancel(1),
    ):
        assert finish(decoding(encode_request(request))) == request


def test_a_request_that_is_too_large_is_refused_and_the_connection_lives(
    answer: list[bytes],
) -> None:
    answer.append(encode_reply(JOB))
    specs = [Spec(("x" * 100_000, str(number)), "x", "/") for number in range(700)]
    with Client(start=False) as deck:
        with pytest.raises(
            UserError, match=r"has \d\d MiB, and the daemon accepts 64 MiB\. Submit fewer"
        ):
            deck.submit_many(specs)
        assert deck.job(7) == JOB


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_setting_that_is_not_finite_is_refused_by_name(answer: list[bytes], value: float) -> None:
    with (
        Client(start=False) as deck,
        pytest.raises(UserError, match=f"^telemetry_hz must be a number, not {value}$"),
    ):
        deck.configure(telemetry_hz=value)


@pytest.mark.parametrize("variable", [("TOKEN", "s3cret\udce9"), ("TOKEN\udce9", "s3cret")])
def test_a_variable_that_is_not_utf8_is_named_without_its_value(
    answer: list[bytes], variable: tuple[str, str]
) -> None:
    with (
        Client(start=False) as deck,
        pytest.raises(UserError, match="environment variable 'TOKEN") as caught,
    ):
        deck.submit(["true"], env=dict([variable]))
    assert "s3cret" not in str(caught.value)


def test_a_shell_whose_folder_was_no_utf8_can_submit_from_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", "/caf\udce9")
    monkeypatch.chdir(tmp_path)
    spec = make_spec(["true"], {})
    assert (spec.cwd, "PWD" in spec.env) == (str(tmp_path), False)
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=r"the folder '.*/caf\\udce9' is not UTF-8. Rename it"):
        make_spec(["true"], {})


def test_a_pipe_in_place_of_the_log_does_not_hang(answer: list[bytes]) -> None:
    answer.append(encode_reply(JOB))
    paths.ensure(paths.job_folder(7))
    os.mkfifo(paths.job_folder(7) / "log")
    with (
        Client(start=False) as deck,
        pytest.raises(UserError, match="log of job 7 cannot be read: not a plain file"),
    ):
        deck.log(7)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("python train.py", "a command is a list of words.* shlex.split.* got 'python train.py'"),
        (["sleep", 3], "a word of a command must be a text or a path; got 3"),
        ({"python"}, "a command is a list of words"),
    ],
)
def test_a_command_is_a_list_of_words(argv, said):
    with pytest.raises(UserError, match=said):
        make_spec(argv, {})


def test_paths_are_words_of_a_command():
    assert make_spec([Path("/bin/true"), "x"], {}).argv == ("/bin/true", "x")
