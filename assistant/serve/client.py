"""Find, start, look at, chat with and stop served models. Free of torch and Qt; calls block."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpudeck.assistant.host_protocol import Chunk, Event, Failed, Waiting
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.serve import control_messages as c
from gpudeck.language.text import phrase
from gpudeck.scheduler.background.launch import start_process
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, UserError
from gpudeck.scheduler.protocol.wire import Connection

PORT = 8420
_ENCODE = msgspec.json.Encoder().encode
_DECODE: Callable[[bytes], c.Reply] = msgspec.json.Decoder(c.Reply).decode
_TIMEOUT_S = 5.0
_STOP_S = 10.0
"""The time in which a server cuts off its answers and ends."""


def sockets() -> list[Path]:
    """Return the sockets of all served models, also of some that ended without removing theirs."""
    return sorted((paths.runtime() / "serving").glob("*.sock"))


def served_models() -> tuple[c.Served, ...]:
    """Return what the models do that are served now."""
    return tuple(found for path in sockets() if (found := _look(path)) is not None)


def find_served(word: str) -> c.Served:
    """Return the served model with this name, folder or port. Raises NotFound."""
    served = served_models()
    folder = str(Path(word).expanduser().absolute())
    found = [
        each for each in served if word in (each.name, str(each.port)) or folder == each.folder
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{each.name} (port {each.port})" for each in served) or "none"
    raise NotFound(
        phrase(
            "no served model, or more than one, is called {word}. Served: {names}",
            word=word,
            names=names,
        )
    )


def stop(port: int) -> None:
    """End the server of a port, and wait until it has ended. Raises DaemonGone if there is none.

    A server that does not end by itself is killed, and its engine with it.
    """
    path = _socket(port)
    connection = Connection(path, _STOP_S)
    pid = connection.server_pid
    try:
        connection.send(_ENCODE(c.Stop()))
        while True:
            connection.receive()
    except DaemonGone:
        pass
    finally:
        connection.close()
    if path.exists():  # one that ended has removed it
        os.kill(pid, signal.SIGKILL)
        path.unlink(missing_ok=True)


def start(options: Options, port: int = PORT) -> c.Served:
    """Serve a model in a process of its own that outlives this one, and return what it does.

    If the port is taken, it is served on a free one. Raises UserError.
    """
    before = {each.port for each in served_models()}
    start_process(
        "gpudeck", paths.home() / "serve.log",
        phrase("the server of {name}", name=Path(options.folder).name),
        arguments=["serve", *_arguments(options, port), "--background"],
    )  # fmt: skip
    for each in served_models():
        if each.port not in before and each.folder == options.folder:
            return each
    log = str(paths.home() / "serve.log")
    raise UserError(phrase("the server ended at once; see {file}", file=log))


def submit(options: Options, port: int = PORT) -> int:
    """Queue a server as a job that holds a GPU, or else the CPU, and return the job's number.

    Raises UserError.
    """
    arguments = [*_arguments(options, port), "--as", "job", "--in-job"]
    argv = [sys.executable, "-P", "-m", "gpudeck", "serve", *arguments]
    with Client() as daemon:
        return daemon.submit(argv, gpus=1, name=f"serve {Path(options.folder).name}").id


class ServedChat:
    """Chat with a served model: `ask` in one thread, `cancel` from another."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._cancelled = False

    def ask(
        self,
        served: c.Served,
        turns: tuple[str, ...],
        on_event: Callable[[Event], None],
        schema: str = "",
        limit: int = 0,
    ) -> c.Said:
        """Return how the model's next message ended; its text comes as events.

        Args:
            served: The model.
            turns: Messages of the user and the model in turn.
            on_event: Is called with what the answer waits for, and with its text piece by piece.
            schema: The JSON schema that the message follows.
            limit: The most tokens of the message; 0: as many as fit.

        Raises:
            Cancelled: `cancel` was called.
            UserError: The model is not served any more, or failed.
        """
        try:
            connection = self._connection = Connection(_socket(served.port), 30.0)
            try:
                if self._cancelled:
                    raise Cancelled
                return _converse(connection, c.Chat(turns, schema, limit), on_event)
            finally:
                connection.close()
        except (DaemonGone, FileNotFoundError) as e:
            if self._cancelled:
                raise Cancelled from None
            raise UserError(
                phrase("{name} is not served any more. Start it under Models", name=served.name)
            ) from e

    def cancel(self) -> None:
        """End the answer."""
        self._cancelled = True
        if self._connection is not None:
            self._connection.close()


def _converse(connection: Connection, chat: c.Chat, on_event: Callable[[Event], None]) -> c.Said:
    connection.send(_ENCODE(chat))
    while True:
        match _DECODE(connection.receive()):
            case Waiting() | Chunk() as event:
                on_event(event)
            case c.Said() as said:
                return said
            case Failed(message=message):
                raise UserError(message)


def _look(path: Path) -> c.Served | None:
    try:
        connection = Connection(path, _TIMEOUT_S)
    except DaemonGone:
        return None
    try:
        connection.send(_ENCODE(c.Look()))
        reply = _DECODE(connection.receive())
        return reply if isinstance(reply, c.Served) else None
    except DaemonGone:
        return _silent(path, connection.server_pid) if path.exists() else None
    finally:
        connection.close()


def _silent(path: Path, pid: int) -> c.Served:
    """Return what is known of a server that does not answer, so that it can be stopped."""
    port = int(path.stem)
    note = f"its server does not answer. To end it: gpudeck models stop {port}"
    return c.Served(f"port {port}", "", port, pid, "lease", "failed", note)


def _socket(port: int) -> Path:
    return paths.runtime() / "serving" / f"{port}.sock"


def _arguments(options: Options, port: int) -> list[str]:
    """Return the arguments of `gpudeck serve`."""
    made = [options.folder, "--weights", options.weights, "--cache", options.cache]
    made += ["--cache-tokens", str(options.cache_tokens), "--port", str(port)]
    made += ["--prompt-cache", str(options.prompts_bytes)]
    made += ["--draft", options.draft] if options.draft else []
    return [*made, "--cpu"] if options.device == "cpu" else made
