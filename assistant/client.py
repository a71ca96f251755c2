"""The client of the assistant's process. Free of torch and Qt; every call blocks.

from gpudeck.assistant.client import Assistant
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

from gpudeck.assistant import host_protocol as m
from gpudeck.assistant.host_protocol import (
    Answer,
    Chunk,
    Completion,
    DeviceChoice,
    Event,
    ModelSpeed,
    When,
)
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query.request import Request
from gpudeck.assistant.tools.proposal import Decision, Proposal, submits_jobs
from gpudeck.extras import missing_of
from gpudeck.language.languages import Language
from gpudeck.language.text import phrase
from gpudeck.scheduler.background.launch import start_process
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.wire import Connection

_ENCODE = msgspec.json.Encoder().encode
_DECODE: Callable[[bytes], m.Reply] = msgspec.json.Decoder(m.Reply).decode

OnEvent = Callable[[Event], None]
R = TypeVar("R", Answer, Completion, ModelSpeed)

_DOES = ("once", "session")
_MAX_DEATHS = 5
"""Processes that may end under a request, one after the other and without new text, before that
is an error."""


def socket_path() -> Path:
    """Return the path of the assistant's socket."""
    return paths.runtime() / "assistant.sock"


class Assistant:
    """Talk to the assistant's process, which is started on demand.

    An object handles one request at a time; `cancel`, `use_cpu` and `status` may be called from
    other threads.
    """

    def __init__(self, *, start: bool = True, timeout: float = 30.0) -> None:
        """Create a client.

        Args:
            start: Start the process if it does not run.
            timeout: Seconds without a sign of life after which the process counts as gone; while
                it works it sends one every second.
        """
        self._start, self._timeout = start, timeout
        self._request = ""
        self._signals: set[type[m.Cancel | m.UseCpu]] = set()
        self.allowed: set[str] = set()
        """Tools, such as `operate cancel`, that are allowed as long as this object is used."""

    def ask(
        self,
        text: str,
        when: When = "now",
        on_event: OnEvent | None = None,
        device: DeviceChoice = "auto",
        meant: Request | None = None,
        state: State | None = None,
        by: str = "",
        folder: str | None = None,
    ) -> Answer:
        """Answer a question, or propose what it asks for.

        An answer with a proposal is for `approve`. A job that is submitted runs in this process's
        folder and with its environment. A tool that was allowed for the session is carried out at
        once if the request is, word by word, an exact form of its order. An answer with choices
        asks what is meant: call `ask` again with the chosen request as `meant`.

        Args:
            text: The question.
            when: Answer now, or once the devices are idle.
            on_event: Called with what the request waits for, and with the text piece by piece.
            device: `cpu` does not wait for a GPU.
            meant: The chosen request, if an answer to the question had choices.
            state: What the conversation is about, from its last answer; None for a new one.
            by: The program that asks in the place of a person.
            folder: Where a job that is submitted runs; None: in this process's folder.

        Raises:
            Cancelled: `cancel` was called.
            DaemonGone: The daemon or the assistant is not running.
            UserError: The request cannot be answered; the message says what to do.
        """
        about = state or State()
        where = os.getcwd() if folder is None else folder
        request = m.Ask(text, when, self._new_id(), where, device, meant, about, by)
        answer = self._converse(request, on_event, Answer)
        proposal = answer.proposal
        if proposal is None or not proposal.certain or proposal.tool not in self.allowed:
            return answer
        done = self.approve(proposal, "once")
        return msgspec.structs.replace(
            done, call=answer.call, routed=answer.routed, state=done.state or answer.state
        )

    def approve(self, proposal: Proposal, how: Decision = "once", token: str = "") -> Answer:
        """Carry out a proposal, or refuse its tool.

        If things have changed, nothing is done, and the answer has another proposal.

        Args:
            proposal: From an answer.
            how: `once` carries it out; `session` also allows the tool for this object; `no` drops
                it; `never` refuses the tool until `gpudeck.assistant.tools.permissions.forget`
                allows it again.
            token: The secret of an access token, in place of a person. If it does not allow the
                proposal, nothing is done, and the answer has the same proposal.

        Raises:
            DaemonGone: The daemon is not running.
            UserError: The token cannot be used, or the proposal has expired, or cannot be carried
                out any more.
        """
        env = make_spec((), {}).env if submits_jobs(proposal.tool) and how in _DOES else {}
        try:
            reply = self._send(m.Approve(proposal.id, how, env, token))
        except DaemonGone as e:
            raise UserError(
                phrase(
                    "the assistant ended, and its proposals with it. Check gpudeck jobs for"
                    " whether it was done, or ask again"
                )
            ) from e
        assert isinstance(reply, Answer), reply
        if how == "session" and not proposal.once:
            self.allowed.add(proposal.tool)
        return reply

    def proposals(self, number: str = "") -> m.Proposals:
        """Return the proposals of programs that wait for a person, and what became of one.

        Args:
            number: The id of a proposal; its outcome is empty while it waits or if it has expired.

        Raises DaemonGone if the assistant does not run; then none waits.
        """
        reply = self._send(m.GetProposals(number))
        assert isinstance(reply, m.Proposals), reply
        return reply

    def report(
        self,
        job: int | None = None,
        since: float | None = None,
        until: float | None = None,
        on_event: OnEvent | None = None,
        *,
        daily: bool = False,
        device: DeviceChoice = "auto",
        language: Language | None = None,
    ) -> Answer:
        """Write a report on one job, or on everything between two times; it is `Answer.report`.

        It waits for an idle GPU only if a language model on a GPU writes its text.

        Args:
            job: The number of the job; None for everything.
            since: Seconds since the epoch; None: the last ten minutes.
            until: Seconds since the epoch; None: now.
            on_event: As for `ask`.
            daily: Title it as the report on a day.
            device: `cpu` does not wait for a GPU.
            language: Of the report; None: that of the settings.

        Raises as `ask` does, and NotFound.
        """
        request = m.Report(job, since, until, daily, self._new_id(), device, language)
        return self._converse(request, on_event, Answer)

    def complete(self, request: m.CompletionRequest, on_event: OnEvent | None = None) -> Completion:
        """Continue a chat or a text; `on_event` is called with the text as Chunks.

        Raises as `ask` does, PromptTooLong and WantedRefused.
        """
        request = msgspec.structs.replace(request, id=self._new_id())
        return self._converse(request, on_event, Completion)

    def benchmark(
        self,
        model: str,
        on: Literal["cpu", "cuda"] = "cpu",
        on_event: OnEvent | None = None,
        engine: m.SpeedEngine = "own",
    ) -> ModelSpeed:
        """Measure the speed of the model in a folder or file. Raises as `ask` does.

        Args:
            engine: With rwkv, the package of that name is timed on the same model, too.
        """
        request = m.Benchmark(model, on, self._new_id(), engine)
        return self._converse(request, on_event, ModelSpeed)

    def wake(self) -> None:
        """Start the process, which loads the model, before the first request.

        Raises DaemonGone and UserError.
        """
        self._connect().close()

    def cancel(self) -> bool:
        """Stop the current request between two tokens. Return False if there is none."""
        return self._signal(m.Cancel)

    def use_cpu(self) -> bool:
        """Make the current request go on with the CPU. Return False if there is none."""
        return self._signal(m.UseCpu)

    def status(self) -> m.AssistantState:
        """Return what the assistant does now, without starting it. Raises DaemonGone."""
        reply = self._send(m.Status())
        assert isinstance(reply, m.AssistantState), reply
        return reply

    def _signal(self, kind: type[m.Cancel | m.UseCpu]) -> bool:
        self._signals.add(kind)  # obeyed also while no process runs
        try:
            reply = self._send(kind(self._request))
        except DaemonGone:
            return False
        return isinstance(reply, m.Acknowledged) and reply.found

    def _new_id(self) -> str:
        self._signals.clear()
        self._request = uuid.uuid4().hex
        return self._request

    def _send(self, request: m.Request) -> m.Reply:
        """Send a request that has one reply."""
        connection = Connection(socket_path(), self._timeout)
        try:
            connection.send(_encode(request))
            return _checked(_DECODE(connection.receive()))
        finally:
            connection.close()

    def _converse(self, request: m.Work, on_event: OnEvent | None, wanted: type[R]) -> R:
        """Return the result of a request.

        If the process ends under the request, as it does when a job needs its GPU, the request is
        sent again with the same id.
        """
        events, deaths = _NewEvents(on_event), 0.0
        while True:
            if m.Cancel in self._signals:
                raise Cancelled
            try:
                reply = self._attempt(request, events)
            except DaemonGone:
                if events.has_new_text():
                    deaths = 0.0
                # a process without any event may have been about to end when it was asked
                deaths += 1.0 if events.any_in_attempt else 0.2
                if deaths > _MAX_DEATHS:
                    raise
                continue
            if isinstance(reply, m.Evicted):
                left = phrase("interrupted: the GPU is needed ({why})", why=reply.reason)
                events.pass_on(m.Waiting(left, cpu=True))
                continue
            assert isinstance(reply, wanted), reply
            return reply

    def _attempt(self, request: m.Work, events: _NewEvents) -> m.Reply:
        """Send a request once, pass its events on, and return its last reply."""
        sent = set(self._signals)
        device: DeviceChoice = "cpu" if m.UseCpu in sent else request.device
        line = _encode(msgspec.structs.replace(request, device=device))
        connection = self._connect()
        try:
            connection.send(line)
            events.begin_attempt()
            while isinstance(reply := _DECODE(connection.receive()), Event):
                for kind in self._signals - sent:  # came while the request was on its way
                    sent.add(kind)
                    self._send(kind(request.id))
                events.pass_on(reply)
        finally:
            connection.close()
        return _checked(reply)

    def _connect(self) -> Connection:
        try:
            return Connection(socket_path(), self._timeout)
        except (DaemonGone, FileNotFoundError) as e:
            if not self._start:
                raise DaemonGone(
                    phrase("the assistant is not running. To start it, run: gpudeck ask")
                ) from e
        if missing := missing_of("assistant", "compute"):
            raise UserError(missing.text)
        Client().close()  # the assistant needs the daemon: start that first
        log, env = paths.home() / "assistant.log", {ASSISTANT_MARK: "1"}
        start_process("gpudeck.assistant.host", log, phrase("the assistant"), env=env)
        return Connection(socket_path(), self._timeout)


class _NewEvents:
    """Pass each event of a request on once, although a second process sends some of them again."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self._waiting: m.Waiting | None = None
        self._passed_on = self._received = 0
        """Characters passed on in all, and received from the current process."""
        self._passed_on_before = 0
        self.any_in_attempt = False
        """The current process has sent an event."""

    def begin_attempt(self) -> None:
        """Prepare for the events of another process."""
        self._received, self.any_in_attempt = 0, False

    def has_new_text(self) -> bool:
        """Return whether there is more text than at the last call."""
        before, self._passed_on_before = self._passed_on_before, self._passed_on
        return self._passed_on > before

    def pass_on(self, event: Event) -> None:
        """Call `on_event` with what is new in an event."""
        self.any_in_attempt = True
        if isinstance(event, Chunk):
            new = event.text[max(self._passed_on - self._received, 0) :]
            self._received += len(event.text)
            self._passed_on = max(self._passed_on, self._received)
            if not new:
                return
            event = Chunk(new, event.tokens)
        elif event == self._waiting:
            return
        else:
            self._waiting = event
        if self._on_event is not None:
            self._on_event(event)


def _encode(request: m.Request) -> bytes:
    """Encode a request. Raises UserError where it holds text that is not UTF-8."""
    try:
        return _ENCODE(request)
    except UnicodeEncodeError as e:
        raise UserError(
            phrase("this cannot be read, as it is not UTF-8: {text}", text=ascii(e.object[:200]))
        ) from e


def _checked(reply: m.Reply) -> m.Reply:
    """Return a reply, or raise the error that it says."""
    if not isinstance(reply, m.Failed):
        return reply
    match reply.kind:
        case "cancelled":
            raise Cancelled
        case "missing":
            raise NotFound(reply.message)
        case "too long":
            raise m.PromptTooLong(reply.message)
        case "refused":
            raise m.WantedRefused(reply.message)
        case "user":
            raise UserError(reply.message)
        case "bug":
            raise RuntimeError(reply.message)
