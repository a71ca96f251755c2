"""What is asked of the assistant and of its models, carried out in the thread of a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from app.assistant.message import UNCHECKED, Curve
from app.format.values import clock
from app.link.curves import curves
from app.link.models_link import Modelling
from app.link.requests import (
    Accepted,
    Answered,
    Approve,
    Ask,
    AssistantRequest,
    Chat,
    Reply,
    Report,
    SaveReport,
    StopAnswer,
    UseCpu,
    Waits,
    Wake,
    Wrote,
)
from app.models.model_requests import ModelRequest
from app.report.file import save_report
from assistant.client import Assistant
from assistant.engine import chat
from assistant.messages import Answer, Event, Waiting, slow_note
from assistant.reports.report import packed, unpacked
from scheduler.client import Client
from scheduler.protocol.errors import UserError

T = TypeVar("T")


class WithClient(Protocol):
    """Carries out a verb with a connection to the daemon."""

    def __call__(self, verb: Callable[[Client], T]) -> T: ...


class Assisting:
    """`tell` takes what is told on the way, from the thread of the request."""

    def __init__(self, tell: Callable[[Reply], None], with_client: WithClient) -> None:
        self._tell, self._with_client = tell, with_client
        self._assistant = Assistant()
        self._modelling = Modelling(tell)

    def stop(self) -> None:
        """End what takes long; may be called from any thread."""
        self._modelling.stop()

    def cancel(self) -> None:
        """End what the assistant writes."""
        self._assistant.cancel()

    def carry_out(self, request: AssistantRequest | ModelRequest) -> Reply:
        """Raises UserError, Cancelled."""
        match request:
            case Chat():
                return self._chat(request)
            case Ask() | Report() | Approve():
                return self._answer(request)
            case StopAnswer():
                self._assistant.cancel()
            case UseCpu():
                self._assistant.use_cpu()
            case Wake():
                self._assistant.wake()
            case SaveReport(report=kept, file=file):
                save_report(unpacked(kept), Path(file))
            case _:
                return self._modelling.carry_out(request)
        return Accepted(request)

    def _answer(self, request: Ask | Report | Approve) -> Reply:
        def on_event(event: Event) -> None:
            self._tell(
                Waits(event.reason, request.id, event.cpu)
                if isinstance(event, Waiting)
                else Wrote(event.text, request.id)
            )

        if isinstance(request, Ask):
            answer = self._assistant.ask(request.text, on_event=on_event, meant=request.meant)
        elif isinstance(request, Approve):
            answer = self._assistant.approve(request.proposal, request.how)
        else:
            answer = self._assistant.report(on_event=on_event)
        return answered(answer, request.id, self._curves(answer))

    def _chat(self, request: Chat) -> Reply:
        text: list[str] = []

        def on_event(event: Event) -> None:
            if isinstance(event, Waiting):
                self._tell(Waits(event.reason, request.id, event.cpu))
            else:
                text.append(event.text)
                self._tell(Wrote(event.text, request.id))

        wanted, left_out = chat.request(request.turns)
        done = self._assistant.complete(wanted, on_event)
        note = (
            f"{UNCHECKED}; the first {left_out} messages were too much to read"
            if left_out
            else UNCHECKED
        )
        told = Answered(
            "".join(text).strip(),
            f"model {done.model}",
            id=request.id,
            tokens=done.tokens,
            seconds=done.seconds,
        )
        return msgspec.structs.replace(told, device=done.device + slow_note(done.by), note=note)

    def _curves(self, answer: Answer) -> tuple[Curve, ...]:
        """None where the daemon has gone meanwhile: the answer is there all the same."""
        try:
            return self._with_client(lambda c: curves(c, answer.facts, answer.text))
        except UserError:
            return ()


def answered(answer: Answer, request: int, drawn: tuple[Curve, ...] = ()) -> Answered:
    facts = tuple(
        (fact.text, fact.said, f"{fact.source}, {clock(fact.time)}") for fact in answer.facts
    )
    report = packed(answer.report) if answer.report is not None else b""
    tool = f"{answer.call.line} (by {answer.routed})" if answer.call is not None else ""
    told = (
        answer.text,
        answer.writer,
        facts,
        request,
        drawn,
        answer.tokens,
        answer.seconds,
        report,
    )
    return Answered(*told, tool, answer.proposal, answer.where, choices=answer.choices)
