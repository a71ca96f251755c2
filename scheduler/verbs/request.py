"""The base of all requests and replies, and their encoding for the client's side of the socket.

Windows, commands and programs import requests in order to send them, so this package imports
neither the queue nor the store: a handler reaches them through the `Daemon` that it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeVar,
    get_args,
)

import msgspec

from gpudeck.language.text import Bytes, Message, phrase
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, Refused, Unsettled, UserError
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.wire import MAX_MESSAGE, Peer

if TYPE_CHECKING:  # types of the handlers, which run in the daemon
    from gpudeck.scheduler.notices.notifier import Notifier
    from gpudeck.scheduler.protocol.bookings import Booking, Freed
    from gpudeck.scheduler.protocol.devices import Process
    from gpudeck.scheduler.protocol.jobs import Job, Spec
    from gpudeck.scheduler.protocol.settings import Settings
    from gpudeck.scheduler.protocol.snapshot import Snapshot
    from gpudeck.scheduler.queue.editing import Editor
    from gpudeck.scheduler.queue.placement import Availability
    from gpudeck.scheduler.queue.queue import Queue
    from gpudeck.scheduler.services.alert_service import AlertService
    from gpudeck.scheduler.services.job_end import JobEnds
    from gpudeck.scheduler.services.polling import PollingController
    from gpudeck.scheduler.services.publisher import Publisher
    from gpudeck.scheduler.store.recorder import Recorder
    from gpudeck.scheduler.suspension.service import SuspensionService
    from gpudeck.scheduler.telemetry.monitor import Monitor

R = TypeVar("R")

encode_message = msgspec.json.Encoder().encode


class JobSuspensions(Protocol):
    """Describe what suspends jobs (see `gpudeck.scheduler.daemon.job_suspension`)."""

    async def suspend(self, job_id: int, resume_at: float | None = None) -> Job: ...
    def resume(self, job_id: int) -> Job: ...


class Daemon(Protocol):
    """Describe what handlers use of the daemon (see `gpudeck.scheduler.daemon.daemon`)."""

    queue: Queue
    monitor: Monitor
    recorder: Recorder
    polling: PollingController
    publisher: Publisher
    alerts: AlertService
    job_ends: JobEnds
    suspensions: SuspensionService
    notifier: Notifier

    @property
    def job_suspensions(self) -> JobSuspensions: ...
    def availability(self, idle: bool = False) -> Availability: ...
    def snapshot(self) -> Snapshot: ...
    def owner(self, peer: Peer) -> int | None: ...
    def viewer(self, peer: Peer) -> int | None: ...
    def mover(self, peer: Peer) -> int | None: ...
    def editor(self, peer: Peer) -> Editor: ...
    def preempts(self, user: int | None) -> Callable[[Spec], bool]: ...
    def queue_changed(self) -> None: ...
    def stop(self) -> None: ...
    def lease(self, memory: int, peer: Peer) -> str: ...
    async def free(self, booking: Booking) -> Freed: ...
    async def end_process(self, process: Process) -> None: ...
    async def configure(self, changes: Mapping[str, object]) -> Settings: ...


Permission = Literal[
    "everybody", "owner", "owner or administrators", "owners or administrators", "administrators",
    "root",
]  # fmt: skip
"""Who may make a request on a daemon that several users share: `owner` is the user of the job that
it names, `owners` those of all of its jobs. Root may make every request."""


class Request(msgspec.Struct, Generic[R], frozen=True, forbid_unknown_fields=True):
    """A request whose reply is an R.

    A field that the daemon does not know is refused: a job must not run without what was asked for.
    """

    permission: ClassVar[Permission] = "root"

    def check(self) -> None:
        """Raise UserError where the client can tell that the request will fail."""

    async def handle(self, daemon: Daemon, peer: Peer) -> R:
        """Carry out the request for the client `peer`.

        A change is on disk when this returns. Raises UserError where the request is refused,
        NotFound where something that it names does not exist.
        """
        raise NotImplementedError


class Ok(msgspec.Struct, frozen=True, tag="ok"):
    """The reply to a request that was carried out and returns nothing."""


class Value(msgspec.Struct, Generic[R], frozen=True, tag="value"):
    """The reply to a request that returns a value."""

    value: R


class Error(msgspec.Struct, frozen=True, tag="error"):
    """The reply to a request that was refused."""

    message: Message
    missing: bool = False
    """Something that the request names does not exist."""
    unsettled: bool = False
    """It is not known whether the request was carried out before (see `errors.Unsettled`)."""

    @classmethod
    def of(cls, error: UserError) -> Self:
        """Return the reply that tells a client of an error."""
        return cls(error.message, isinstance(error, NotFound), isinstance(error, Unsettled))

    def error(self) -> UserError:
        """Return the error as the client raises it."""
        kind = NotFound if self.missing else Unsettled if self.unsettled else Refused
        return kind(self.message)


def encode_reply(value: object) -> bytes:
    """Encode what a handler returned."""
    return encode_message(Ok() if value is None else Value(value))


def encoding_reply(value: object, seen: Callable[[Any], object]) -> Work[bytes]:
    """Encode what a handler returned, a long list part by part.

    Args:
        seen: Returns a value as the client may see it.
    """
    if not isinstance(value, tuple):
        return encode_reply(seen(value))
    found: list[bytes] = []
    for part in parts(value):
        found.append(encode_message(seen(part))[1:-1])  # without the brackets of the list
        yield
    return encode_reply(msgspec.Raw(b"[" + b",".join(found) + b"]"))


def encode_request(request: Request[Any]) -> bytes:
    """Encode a request, without the end of its line.

    Raises UserError where it is too long, or holds text that is not UTF-8.
    """
    try:
        line = encode_message(request)
    except UnicodeEncodeError as e:
        raise UserError(
            phrase(
                "only UTF-8 can be sent to the daemon, and this is not UTF-8: {object}",
                object=ascii(e.object),
            )
        ) from e
    if len(line) >= MAX_MESSAGE:
        raise UserError(
            phrase(
                "the request has {size}, and the daemon accepts {most}. Submit fewer jobs at once.",
                size=Bytes(len(line)),
                most=Bytes(MAX_MESSAGE),
            )
        )
    return line


_BUILDING = threading.Lock()
"""Two threads that build decoders of the same types at once crash msgspec."""


def decode_reply(line: bytes, request: Request[R]) -> R:
    """Decode the reply to `request`. Raises what `Error.error` returns where it is one."""
    try:
        with _BUILDING:
            decoder = _reply_decoder(type(request))
        reply = decoder.decode(line)
    except MALFORMED as e:
        raise UserError(
            phrase(
                "the daemon belongs to another version of GPU Deck. Restart it with: "
                "gpudeck daemon stop"
            )
        ) from e
    if isinstance(reply, Error):
        raise reply.error()
    value: R = reply.value if isinstance(reply, Value) else None  # type: ignore[assignment]
    return value


@cache
def _reply_decoder(kind: type[Request[Any]]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of the replies that `Request[R]` in the definition of `kind` names."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (reply,) = get_args(base)
    value = Ok if reply is type(None) else Value[reply]  # type: ignore[valid-type]
    return msgspec.json.Decoder(value | Error)
