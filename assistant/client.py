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
from typing import Literal, TypeVar

import msgspec

from assistant import messages as m
from assistant.idle import Cancelled
from assistant.intents.tool_call import ToolCall
from assistant.messages import (
    Answer,
    Chunk,
    Completion,
    DeviceChoice,
    Event,
    ModelSpeed,
    State,
    Waiting,
    When,
)
from assistant.tools.proposal import NEW_JOBS, Decision, Proposal
from scheduler.background.launch import start_process
from scheduler.client import Client
from scheduler.protocol import paths
from scheduler.protocol.devices import ASSISTANT_MARK
from scheduler.protocol.errors import DaemonGone, NotFound, UserError
from scheduler.protocol.job_options import make_spec
from scheduler.protocol.wire import Connection

_ENCODE = msgspec.json.Encoder().encode
_DECODE: Callable[[bytes], m.Reply] = msgspec.json.Decoder(m.Reply).decode

OnEvent = Callable[[Event], None]


R = TypeVar("R", Answer, Completion, ModelSpeed)

DEATHS = 5
"""Processes that may end under a request one after the other, without a word and with no text more, until that is an error."""


def socket_path() -> Path:
    """The assistant's socket."""
    return paths.runtime() / "assistant.sock"


class Assistant:
    """The assistant, started on demand. One request at a time; `cancel` and `status` may come from other threads."""

    def __init__(self, *, start: bool = True, timeout: float = 30.0) -> None:
        """`timeout`: seconds of silence after which the assistant counts as gone; while it works it speaks every second."""
        self._start, self._timeout = start, timeout
        self._request = ""
        self._told: set[type[m.Cancel | m.UseCpu]] = set()
        self.allowed: set[str] = set()
        """Tools, such as `operate cancel`, that were allowed for this session: as long as this object is used."""

    def ask(
        self,
        text: str,
        when: When = "now",
        on_event: OnEvent | None = None,
        device: DeviceChoice = "auto",
        meant: ToolCall | None = None,
    ) -> Answer:
        """Answer a question. `on_event` hears what is waited for and the text piece by piece. `device`: cpu does not wait for a GPU.

        Where something is to be done, the answer has a proposal, for `approve`: a job that is submitted so runs in this process's folder,
        with its environment. What was allowed for this session is done at once, where the rules read the request so, too. Where it is not
        clear what is meant, the answer has choices: ask again, with the one that is `meant`.

        Raises Cancelled after `cancel`, DaemonGone where daemon or assistant are not there, UserError for what the user can put right.
        """
        answer = self._answer(m.Ask(text, when, self._new(), os.getcwd(), device, meant), on_event)
        proposal = answer.proposal
        if proposal is None or not proposal.certain or proposal.tool not in self.allowed:
            return answer
        done = self.approve(proposal, "once")
        return msgspec.structs.replace(done, call=answer.call, routed=answer.routed)

    def approve(self, proposal: Proposal, how: Decision = "once") -> Answer:
        """A person's word on a proposal: it is done, and the answer says so; `session`: and not asked again by this object; `never`: it
        is not done, nor proposed again, until that is taken back (`assistant.tools.permissions.take_back`).

        Where things have changed meanwhile, nothing is done, and the answer has another proposal. Raises UserError where the proposal is
        gone, or cannot be carried out any more, DaemonGone.
        """
        env = make_spec((), {}).env if proposal.tool in NEW_JOBS and how != "never" else {}
        try:
            reply = self._once(m.Approve(proposal.id, how, env))
        except DaemonGone as e:
            raise UserError(
                "the assistant ended meanwhile, and its proposals with it. See gpudeck jobs for whether it was done, or ask again"
            ) from e
        assert isinstance(reply, Answer), reply
        if how == "session" and not proposal.once:
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
        device: DeviceChoice = "auto",
    ) -> Answer:
        """A brief of one job, or of all that happened since a time (None: ten minutes ago), and `Answer.report`, all of it.

        `daily`: it is called the report on a day. Raises as `ask` does, and NotFound.
        """
        return self._answer(m.Report(job, since, daily, when, self._new(), device), on_event)

    def complete(self, request: m.CompletionRequest, on_event: OnEvent | None = None) -> Completion:
        """What the model makes of a prompt; its text comes to `on_event` in Chunks. Raises as `ask` does, and PromptTooLong."""
        return self._converse(
            msgspec.structs.replace(request, id=self._new()), on_event, Completion
        )

    def benchmark(
        self, model: str, on: Literal["cpu", "cuda"] = "cpu", on_event: OnEvent | None = None
    ) -> ModelSpeed:
        """How fast the model in that folder or file is there. Raises as `ask` does."""
        return self._converse(m.Benchmark(model, on, self._new()), on_event, ModelSpeed)

    def wake(self) -> None:
        """Have its process there, which loads the model: somebody is about to ask. Raises DaemonGone, UserError."""
        self._connect().close()

    def cancel(self) -> bool:
        """Stop the request that `ask` or `report` waits for, between two tokens; False where there is none."""
        return self._tell(m.Cancel(self._request))

    def use_cpu(self) -> bool:
        """Have that request wait no more, and go on with the CPU; False where there is none."""
        return self._tell(m.UseCpu(self._request))

    def _tell(self, word: m.Cancel | m.UseCpu) -> bool:
        self._told.add(type(word))  # heeded where there is no process just now
        try:
            reply = self._once(word)
        except DaemonGone:
            return False
        return isinstance(reply, m.Ok) and reply.found

    def status(self) -> State:
        """What it does now. Raises DaemonGone where it does not run: asking does not start it."""
        reply = self._once(m.Status())
        assert isinstance(reply, State), reply
        return reply

    def _new(self) -> str:
        self._told.clear()
        self._request = uuid.uuid4().hex
        return self._request

    def _once(self, request: m.Request) -> m.Reply:
        connection = Connection(socket_path(), self._timeout)
        try:
            connection.send(_ENCODE(request))
            reply = _DECODE(connection.receive())
        finally:
            connection.close()
        if isinstance(reply, m.Error):
            raise _error(reply)
        return reply

    def _answer(self, request: m.Ask | m.Report, on_event: OnEvent | None) -> Answer:
        return self._converse(request, on_event, Answer)

    def _converse(self, request: m.Work, on_event: OnEvent | None, wanted: type[R]) -> R:
        """Asked again, by the same id, where the assistant's process ended under the request, as it does when a job needs its GPU."""
        heard, deaths = _Heard(on_event), 0.0
        while True:
            if m.Cancel in self._told:
                raise Cancelled
            try:
                reply = self._once_through(request, heard)
            except DaemonGone:
                # one that said nothing may have been about to end when it was asked
                deaths = (0.0 if heard.anything_new() else deaths) + (1.0 if heard.spoken else 0.2)
                if deaths > DEATHS:
                    raise
                continue
            if isinstance(reply, m.Left):
                heard(
                    Waiting(f"had to leave the GPU ({reply.reason}), and goes on later", cpu=True)
                )
                continue
            assert isinstance(reply, wanted), reply
            return reply

    def _once_through(self, request: m.Work, heard: _Heard) -> m.Reply:
        connection = self._connect()
        try:
            told = set(self._told)
            device: DeviceChoice = "cpu" if m.UseCpu in told else request.device
            connection.send(_ENCODE(msgspec.structs.replace(request, device=device)))
            heard.begin()
            while isinstance(reply := _DECODE(connection.receive()), Event):
                for word in self._told - told:  # while the request was on its way
                    told.add(word)
                    self._once(word(request.id))
                heard(reply)
        finally:
            connection.close()
        if isinstance(reply, m.Error):
            raise _error(reply)
        return reply

    def _connect(self) -> Connection:
        try:
            return Connection(socket_path(), self._timeout)
        except (DaemonGone, FileNotFoundError) as e:
            if not self._start:
                raise DaemonGone("the assistant does not run. It starts with: gpudeck ask") from e
        Client().close()  # the assistant lives on the daemon's facts: that one first
        start_process(
            "assistant.host",
            paths.home() / "assistant.log",
            "the assistant",
            env={ASSISTANT_MARK: "1"},
        )
        return Connection(socket_path(), self._timeout)


class _Heard:
    """What was told of a request: each thing once, although it is told again after the process has ended."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self._waiting: Waiting | None = None
        self._text = self._now = 0
        """Characters that were passed on, and that this process has told."""
        self._before = 0
        self.spoken = False
        """Whether this process has told anything."""

    def begin(self) -> None:
        """Another process begins to tell."""
        self._now, self.spoken = 0, False

    def anything_new(self) -> bool:
        """Whether there is more text than when this was asked last."""
        before, self._before = self._before, self._text
        return self._text > before

    def __call__(self, event: Event) -> None:
        self.spoken = True
        if isinstance(event, Chunk):
            fresh = event.text[max(self._text - self._now, 0) :]
            self._now += len(event.text)
            self._text = max(self._text, self._now)
            if not fresh:
                return
            event = Chunk(fresh)
        elif event == self._waiting:
            return
        else:
            self._waiting = event
        if self._on_event is not None:
            self._on_event(event)


def _error(reply: m.Error) -> Exception:
    match reply.kind:
        case "cancelled":
            return Cancelled()
        case "missing":
            return NotFound(reply.message)
        case "too long":
            return m.PromptTooLong(reply.message)
        case "user":
            return UserError(reply.message)
        case "bug":
            return RuntimeError(reply.message)
