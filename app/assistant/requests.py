"""Requests to the assistant and its language model.

Requests that produce an answer report `gpudeck.assistant.host_protocol.Event` values as progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from gpudeck.app.assistant.answer_curves import find_curves
from gpudeck.app.assistant.conversation import write_text
from gpudeck.app.assistant.message_tree import Curve, SavedConversation
from gpudeck.app.assistant.notes import CUT_OFF, left_out_note
from gpudeck.app.assistant.presets import Preset
from gpudeck.app.assistant.session_files import SessionFiles, Summary
from gpudeck.app.format.values import clock
from gpudeck.app.language.texts import tr_text
from gpudeck.app.link.call import Call
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.engine.prompts import chat_request
from gpudeck.assistant.host_protocol import Answer, Chunk, Event, Waiting
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.intents.choices import Choice
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.library.describe import name_of
from gpudeck.assistant.query.request import Request
from gpudeck.assistant.query.steps import Step
from gpudeck.assistant.reports.report import packed
from gpudeck.assistant.serve import client as serving
from gpudeck.assistant.tools.proposal import Decision, Proposal
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError


class FinishedAnswer(msgspec.Struct, frozen=True):
    """Describe a finished answer as a message shows and keeps it."""

    text: str
    writer: str
    """Who wrote it: "template" or "model NAME"."""
    facts: tuple[tuple[str, str, str], ...] = ()
    """Name, value and source of each fact that the text rests on."""
    curves: tuple[Curve, ...] = ()
    tokens: int = 0
    """Tokens that the model wrote."""
    seconds: float = 0.0
    """Time from the request to the answer."""
    report: bytes = b""
    """The report behind a brief, packed (see `gpudeck.assistant.reports.report`)."""
    tool: str = ""
    """The query or order that the request was read as, as one line."""
    reader: str = ""
    """Who read the request, as `Answer.routed` has it."""
    proposal: Proposal | None = None
    """What the assistant will do if a person allows it."""
    device: str = ""
    """Where the model ran: cpu or cuda; empty for the template."""
    note: Message = ""
    """A remark for the reader, such as that old messages did not fit."""
    choices: tuple[Choice, ...] = ()
    """Meanings of the question to choose from."""
    about: State | None = None
    """What the conversation is about after this answer."""
    code_path: str = ""
    """Code whose attention can be accelerated, to open on its page."""
    steps: tuple[Step, ...] = ()
    """What helps with what the answer tells, or shows more of it."""


class Ask(msgspec.Struct, frozen=True):
    """Ask the assistant a question; `meant` is the meaning that the user chose."""

    text: str
    meant: Request | None = None
    about: State = State()
    """What the conversation is about, by its last answer."""

    def carry_out(self, call: Call) -> FinishedAnswer:
        """Return the answer, with curves of the values that it names."""
        assistant = _assistant(call)
        answer = assistant.ask(self.text, on_event=call.report, meant=self.meant, state=self.about)
        return finished(answer, _curves(call, answer))


class WriteBrief(msgspec.Struct, frozen=True):
    """Write a brief of the last ten minutes."""

    def carry_out(self, call: Call) -> FinishedAnswer:
        """Return the brief."""
        answer = _assistant(call).report(on_event=call.report)
        return finished(answer, _curves(call, answer))


class Decide(msgspec.Struct, frozen=True):
    """Allow or forbid what the assistant proposed."""

    proposal: Proposal
    decision: Decision

    def carry_out(self, call: Call) -> FinishedAnswer:
        """Return an answer that describes what was done."""
        return finished(_assistant(call).approve(self.proposal, self.decision))


class ReadProposals(msgspec.Struct, frozen=True):
    """Read what programs propose."""

    def carry_out(self, call: Call) -> tuple[Proposal, ...]:
        """Return the proposals that wait; none if the assistant does not run."""
        try:
            return Assistant(start=False).proposals().waiting
        except (DaemonGone, FileNotFoundError):
            return ()


class Chat(msgspec.Struct, frozen=True):
    """Talk to the assistant's own model, whose replies are not checked here."""

    turns: tuple[str, ...]
    """Messages of the user and the model in turn; the first and the last are the user's."""

    def carry_out(self, call: Call) -> FinishedAnswer:
        """Return the reply of the model."""
        pieces: list[str] = []

        def on_event(event: Event) -> None:
            if isinstance(event, Chunk):
                pieces.append(event.text)
            call.report(event)

        request, left_out = chat_request(self.turns)
        done = _assistant(call).complete(request, on_event)
        return FinishedAnswer(
            "".join(pieces).strip(),
            f"model {done.model}",
            tokens=done.tokens,
            seconds=done.seconds,
            device=done.device,
            note=left_out_note(left_out) if left_out else "",
        )


class ChatServed(msgspec.Struct, frozen=True):
    """Talk to a served model, which is started if it is not served yet."""

    folder: str
    turns: tuple[str, ...]
    """As in Chat."""

    def carry_out(self, call: Call) -> FinishedAnswer:
        """Return the reply of the model."""
        found = [each for each in serving.served_models() if each.folder == self.folder]
        found = [each for each in found if each.phase != "failed"]
        if not found:
            call.report(Waiting(phrase("starting {name}", name=name_of(self.folder))))
            found = [serving.start(Options(self.folder))]
        pieces: list[str] = []

        def on_event(event: Event) -> None:
            if isinstance(event, Chunk):
                pieces.append(event.text)
            call.report(event)

        chat = serving.ServedChat()
        call.on_cancel(chat.cancel)
        said = chat.ask(found[0], self.turns, on_event)
        note: Message = left_out_note(said.left_out) if said.left_out else ""
        if said.cut_off:
            note = phrase("{what}; {rest}", what=note, rest=CUT_OFF) if note else CUT_OFF
        return FinishedAnswer(
            "".join(pieces).strip(),
            f"model {found[0].name}",
            tokens=said.tokens,
            seconds=said.seconds,
            device=said.device,
            note=note,
        )


class UseCpu(msgspec.Struct, frozen=True):
    """Have the answer that waits for a GPU written on the CPU."""

    def carry_out(self, call: Call) -> None:
        """Tell the assistant."""
        call.service(Assistant).use_cpu()


class Wake(msgspec.Struct, frozen=True):
    """Have the assistant load its model before somebody asks."""

    def carry_out(self, call: Call) -> None:
        """Start the assistant."""
        call.service(Assistant).wake()


def finished(answer: Answer, curves: tuple[Curve, ...] = ()) -> FinishedAnswer:
    """Return an answer as a message shows it."""
    return FinishedAnswer(
        answer.text,
        answer.writer,
        tuple((f.text, f.said, f"{tr_text(f.source)}, {clock(f.time)}") for f in answer.facts),
        curves,
        answer.tokens,
        answer.seconds,
        packed(answer.report) if answer.report is not None else b"",
        answer.call.line if answer.call is not None else "",
        answer.routed if answer.call is not None else "",
        answer.proposal,
        answer.device,
        choices=answer.choices,
        about=answer.state,
        code_path=answer.code,
        steps=answer.steps,
    )


def _assistant(call: Call) -> Assistant:
    """Return the window's assistant, which stops writing when the call is cancelled."""
    assistant = call.service(Assistant)
    call.on_cancel(assistant.cancel)
    return assistant


def _curves(call: Call, answer: Answer) -> tuple[Curve, ...]:
    try:
        with call.client() as client:
            return find_curves(client, answer.facts, answer.text)
    except UserError:
        return ()  # the daemon has gone meanwhile: the answer is complete without curves


class SessionRequest(msgspec.Struct, frozen=True):
    """Describe what all requests for the files of conversations share."""

    in_order: ClassVar[bool] = True


class FindSessions(SessionRequest, frozen=True):
    """List the conversations that contain all of these words, newest first."""

    words: str = ""

    def carry_out(self, call: Call) -> tuple[tuple[Summary, ...], str]:
        """Return the conversations, and a notice for the user about files that are damaged."""
        files = call.service(SessionFiles)
        return files.find(self.words), files.notice


class OpenSession(SessionRequest, frozen=True):
    """Read a conversation."""

    key: str

    def carry_out(self, call: Call) -> SavedConversation:
        """Return the conversation."""
        return call.service(SessionFiles).open(self.key)


class SaveSession(SessionRequest, frozen=True):
    """Write a conversation to its file."""

    saved: SavedConversation

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        call.service(SessionFiles).save(self.saved)


class RenameSession(SessionRequest, frozen=True):
    """Give a conversation another title."""

    key: str
    title: str

    def carry_out(self, call: Call) -> None:
        """Change the title in the file."""
        call.service(SessionFiles).rename(self.key, self.title)


class DeleteSession(SessionRequest, frozen=True):
    """Delete a conversation; the newest deleted ones can be restored."""

    key: str

    def carry_out(self, call: Call) -> None:
        """Move the file to the deleted ones."""
        call.service(SessionFiles).delete(self.key)


class RestoreSession(SessionRequest, frozen=True):
    """Restore a deleted conversation."""

    key: str

    def carry_out(self, call: Call) -> None:
        """Move the file back."""
        call.service(SessionFiles).restore(self.key)


class ReadPresets(SessionRequest, frozen=True):
    """Read the presets."""

    def carry_out(self, call: Call) -> tuple[Preset, ...]:
        """Return the presets."""
        return call.service(SessionFiles).presets()


class SavePresets(SessionRequest, frozen=True):
    """Replace the presets."""

    presets: tuple[Preset, ...]

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        call.service(SessionFiles).save_presets(self.presets)


class WriteText(SessionRequest, frozen=True):
    """Write an exported conversation to a file that the user chose."""

    file: str
    text: str

    def carry_out(self, call: Call) -> None:
        """Write the file."""
        write_text(Path(self.file), self.text)
