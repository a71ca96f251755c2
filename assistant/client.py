"""How window and command line reach the assistant. Free of torch and Qt; every call blocks.

from assistant.client import Assistant
answer = Assistant().ask("how hot is the GPU?")
print(answer.text, answer.writer)
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from assistant import messages as m
from assistant.idle import Cancelled
from assistant.messages import Answer, Event, State, Waiting, When
from assistant.tools.actions import NEW_JOBS
from assistant.tools.proposals import How, Proposal
from scheduler import paths
from scheduler.client import Client
from scheduler.devices.model import ASSISTANT_MARK
from scheduler.errors import DaemonGone, NotFound, UserError
from scheduler.launch import start_process
from scheduler.wire import Connection
from scheduler.wishes import wish

_ENCODE = msgspec.json.Encoder().encode
_DECODE: Callable[[bytes], m.Reply] = msgspec.json.Decoder(m.Reply).decode

OnEvent = Callable[[Event], None]


def door() -> Path:
    """The assistant's socket."""
    return paths.runtime() / "assistant.sock"


class Assistant:
    """The assistant, started on demand. One request at a time; `cancel` and `status` may come from other threads."""

    def __init__(self, *, start: bool = True, timeout: float = 30.0) -> None:
        """`timeout`: seconds of silence after which the assistant counts as gone; while it works it speaks every second."""
        self._start, self._timeout = start, timeout
        self._request = ""
        self.allowed: set[str] = set()
        """Tools, such as `operate cancel`, that were allowed for this session: as long as this object is used."""

    def ask(self, text: str, when: When = "now", on_event: OnEvent | None = None) -> Answer:
        """Answer a question. `on_event` hears what is waited for and the text piece by piece.

        Where something is to be done, the answer has a proposal, for `approve`: a job that is submitted so runs in this process's folder,
        with its environment. What was allowed for this session is done at once, where the rules read the request so, too.

        Raises Cancelled after `cancel`, DaemonGone where daemon or assistant are not there, UserError for what the user can put right.
        """
        answer = self._answer(m.Ask(text, when, self._new(), os.getcwd()), on_event)
        proposal = answer.proposal
        if proposal is None or not proposal.certain or proposal.tool not in self.allowed:
            return answer
        done = self.approve(proposal, "once")
        return msgspec.structs.replace(done, call=answer.call, routed=answer.routed)

    def approve(self, proposal: Proposal, how: How = "once") -> Answer:
        """A person's word on a proposal: it is done, and the answer says so; `session`: and not asked again by this object; `never`: it
        is not done, nor proposed again, until that is taken back (`assistant.tools.proposals.take_back`).

        Where things have changed meanwhile, nothing is done, and the answer has another proposal. Raises UserError where the proposal is
        gone, or cannot be carried out any more, DaemonGone.
        """
        env = wish((), {}).env if proposal.tool in NEW_JOBS and how != "never" else {}
        reply = self._once(m.Approve(proposal.id, how, env))
        assert isinstance(reply, Answer), reply
        if how == "session":
            self.allowed.add(proposal.tool)
        return reply

    def report(
        self,
        job: int | None = None,
        since: float | None = None,
        when: When = "idle",
        on_event: OnEvent | None = None,
        *,
        daily: bool = False,
    ) -> Answer:
        """A brief of one job, or of all that happened since a time (None: ten minutes ago), and `Answer.report`, all of it.

        `daily`: it is called the report on a day. Raises as `ask` does, and NotFound.
        """
        return self._answer(m.Report(job, since, daily, when, self._new()), on_event)

    def cancel(self) -> bool:
        """Stop the request that `ask` or `report` waits for, between two tokens; False where there is none."""
        try:
            reply = self._once(m.Cancel(self._request))
        except DaemonGone:
            return False
        return isinstance(reply, m.Ok) and reply.found

    def status(self) -> State:
        """What it does now. Raises DaemonGone where it does not run: asking does not start it."""
        reply = self._once(m.Status())
        assert isinstance(reply, State), reply
        return reply

    def _new(self) -> str:
        self._request = uuid.uuid4().hex
        return self._request

    def _once(self, request: m.Request) -> m.Reply:
        connection = Connection(door(), self._timeout)
        try:
            connection.send(_ENCODE(request))
            reply = _DECODE(connection.receive())
        finally:
            connection.close()
        if isinstance(reply, m.Error):
            raise _error(reply)
        return reply

    def _answer(self, request: m.Ask | m.Report, on_event: OnEvent | None) -> Answer:
        """Once more where the assistant's process ended under the request, as it does at once when a job needs its GPU."""
        try:
            return self._converse(request, on_event)
        except DaemonGone:
            return self._converse(request, on_event)

    def _converse(self, request: m.Ask | m.Report, on_event: OnEvent | None) -> Answer:
        connection = self._connect()
        try:
            connection.send(_ENCODE(request))
            told: str | None = None
            reply = _DECODE(connection.receive())
            while not isinstance(reply, Answer):
                if isinstance(reply, m.Error):
                    raise _error(reply)
                repeated = isinstance(reply, Waiting) and reply.reason == told
                told = reply.reason if isinstance(reply, Waiting) else told
                if on_event is not None and isinstance(reply, Event) and not repeated:
                    on_event(reply)
                reply = _DECODE(connection.receive())
            return reply
        finally:
            connection.close()

    def _connect(self) -> Connection:
        try:
            return Connection(door(), self._timeout)
        except (DaemonGone, FileNotFoundError) as e:
            if not self._start:
                raise DaemonGone("the assistant does not run. It starts with: gpudeck ask") from e
        Client().close()  # the assistant lives on the daemon's facts: that one first
        start_process("assistant.host", paths.home() / "assistant.log", "the assistant", env={ASSISTANT_MARK: "1"})
        return Connection(door(), self._timeout)


def _error(reply: m.Error) -> Exception:
    match reply.kind:
        case "cancelled":
            return Cancelled()
        case "missing":
            return NotFound(reply.message)
        case "user":
            return UserError(reply.message)
        case "bug":
            return RuntimeError(reply.message)
