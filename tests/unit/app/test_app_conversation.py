"""A conversation: answers in pieces, branches, deletion with undo, and the files that keep it
all."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import msgspec
import pytest

from gpudeck.app.assistant import conversation as conversations
from gpudeck.app.assistant import session_files
from gpudeck.app.assistant.answer_curves import find_curves, named_readings
from gpudeck.app.assistant.captions import curve_range
from gpudeck.app.assistant.conversation import Conversation, as_markdown, code_blocks, exported
from gpudeck.app.assistant.message_tree import Curve, SavedConversation
from gpudeck.app.assistant.presets import Preset, own_presets
from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.assistant.session_files import SessionFiles
from gpudeck.assistant.facts import Fact
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.snapshot import Columns
from tests.gui import snapshots


def said(conversation: Conversation) -> list[str]:
    return [m.text for m in conversation.messages]


def asked(
    conversation: Conversation, question: str, answer: str, instead: int | None = None
) -> None:
    conversation.answered(
        FinishedAnswer(answer, "template"), conversation.ask(question, instead=instead)
    )


def test_an_answer_comes_in_pieces():
    conversation = Conversation()
    number = conversation.ask("why?")
    conversation.waits("idle: GPU 0 at 98 %", number)
    assert (conversation.messages[-1].state, conversation.messages[-1].note) == (
        "waiting",
        "idle: GPU 0 at 98 %",
    )
    conversation.wrote("be", number)
    conversation.wrote("cause", number)
    assert conversation.messages[-1].text == "because"
    conversation.answered(FinishedAnswer("because.", "template", (("a", "1", "here"),)), number)
    assert (conversation.busy, conversation.messages[-1].writer) == (False, "template")


def test_one_answer_at_a_time():
    conversation = Conversation()
    conversation.ask("one")
    with pytest.raises(UserError, match="one answer at a time"):
        conversation.ask("two")


def test_what_comes_after_stop_is_dropped_even_when_the_next_question_runs():
    conversation = Conversation()
    first = conversation.ask("one")
    conversation.wrote("half", first)
    conversation.stopped()
    second = conversation.ask("two")
    conversation.wrote(" late", first)
    conversation.answered(FinishedAnswer("late", "template"), first)
    conversation.failed("late", first)
    assert [m.text for m in conversation.messages] == ["one", "half", "two", ""]
    conversation.failed("the model folder is gone", second)
    assert (conversation.messages[-1].state, conversation.messages[-1].note) == (
        "failed",
        "the model folder is gone",
    )


def test_a_full_conversation_takes_no_more_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(conversations, "MAX_MESSAGES", 4)
    conversation = Conversation()
    asked(conversation, "one", "1")
    asked(conversation, "two", "2")
    with pytest.raises(UserError, match="start a new one"):
        conversation.ask("three")
    assert said(conversation) == ["one", "1", "two", "2"]


def test_edits_and_second_answers_are_branches_that_can_be_gone_through():
    conversation = Conversation()
    asked(conversation, "one", "1")
    asked(conversation, "two", "2")
    conversation.answered(
        FinishedAnswer("1, again", "template"), conversation.again(conversation.path[1])
    )
    assert said(conversation) == ["one", "1, again"]
    conversation.step(conversation.path[1], -1)
    assert said(conversation) == ["one", "1", "two", "2"], (
        "what followed the first answer is still there"
    )
    asked(conversation, "TWO", "22", instead=conversation.path[2])
    assert said(conversation) == ["one", "1", "TWO", "22"]
    conversation.step(conversation.path[2], 1)
    assert said(conversation) == ["one", "1", "two", "2"], "after the last one comes the first"
    assert Conversation(conversation.saved()).saved() == conversation.saved()


def test_what_was_deleted_comes_back_as_it_was():
    conversation = Conversation()
    asked(conversation, "one", "1")
    asked(conversation, "two", "2")
    asked(conversation, "TWO", "22", instead=conversation.path[2])
    before = conversation.saved()
    cut = conversation.remove(conversation.path[1])
    assert said(conversation) == ["one"]
    conversation.tree.restore(cut)
    assert conversation.saved() == before
    conversation.ask("three")
    with pytest.raises(UserError, match="stop"):
        conversation.remove(conversation.path[0])


def test_nothing_that_a_file_says_makes_a_tree_of_what_is_none():
    node = {"id": 1, "parent": 0, "message": {"author": "you", "text": "x"}}
    for nodes in ([node, node], [{**node, "parent": 1}], [{**node, "parent": 7}]):
        saved = msgspec.convert(
            {"key": "0" * 32, "title": "t", "changed": 0.0, "nodes": nodes}, SavedConversation
        )
        with pytest.raises(ValueError, match="message"):
            Conversation(saved)


def test_an_answer_that_was_being_written_is_stopped_when_it_is_read_again():
    conversation = Conversation()
    conversation.wrote("half", conversation.ask("one"))
    again = Conversation(conversation.saved())
    assert not again.busy
    assert (again.messages[-1].state, again.messages[-1].text) == ("stopped", "half")


def test_export():
    conversation = Conversation()
    number = conversation.ask("how hot?\nreally")
    conversation.answered(
        FinishedAnswer(
            "**66 °C**", "model tiny", (("GPU 0 temp: 66 °C", "66 °C", "NVML readings"),)
        ),
        number,
    )
    text = as_markdown(conversation)
    assert "> how hot?\n> really\n\n**66 °C**\n\n*Written by the model tiny" in text
    assert "- GPU 0 temp: 66 °C (NVML readings)" in text
    assert (
        json.loads(exported(conversation, "x.json"))["nodes"][1]["message"]["writer"]
        == "model tiny"
    )
    with pytest.raises(UserError, match=r"\.md or \.json"):
        exported(conversation, "x.doc")


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("a\n```sh\nls\n\nps\n```\nb", ("ls\n\nps",)),
        ("~~~~\n```\nx\n```\n~~~~\n```py\ny", ("```\nx\n```", "y")),
        ("no `code` block", ()),
    ],
)
def test_code_blocks(text, blocks):
    assert code_blocks(text) == blocks


def test_curves_show_the_same_data_as_the_text():
    facts = [
        Fact(
            "gpu0.temp.max",
            66.0,
            "°C",
            "66 °C",
            "NVML readings",
            1.0,
            "GPU 0 highest temperature: 66 °C",
        ),
        Fact("gpu0.power", 655.0, "W", "655 W", "NVML readings", 1.0, "GPU 0 power: 655 W"),
        Fact(
            "gpu0.util",
            None,
            "",
            "N/A (lost)",
            "NVML readings",
            1.0,
            "GPU 0 utilisation: N/A (lost)",
        ),
        Fact("job7.ended", 1.0, "s", "12:00", "queue", 1.0, "Job 7 ended: 12:00"),
    ]
    facts.append(Fact("gpu1.util", 0.0, "%", "0 %", "NVML readings", 1.0, "GPU 1 utilisation: 0 %"))
    assert named_readings(facts, "It drew 655 W at 66 °C. N/A (lost) 12:00, 100 %") == (
        ("gpu0", "power"),
        ("gpu0", "temp"),
    )
    assert curve_range(Curve("x", "°C", (1.0, 2.0, 3.0), (33.0, None, 66.0))) == "33.0 to 66.0 °C"


def test_a_value_without_a_history_has_no_curve():
    class Daemon:
        def snapshot(self):
            return snapshots.gpu_snapshot(1)

        def history(self, device, fields, *_):
            read = {"power": [600.0, 655.0], "temp": [None, 66.0]}
            return Columns([1.0, 2.0], {field: read[field] for field in fields})

    facts = [
        Fact("gpu0.power", 655.0, "W", "655 W", "NVML readings", 2.0, "GPU 0 power: 655 W"),
        Fact("gpu0.temp", 66.0, "°C", "66 °C", "NVML readings", 2.0, "GPU 0 temperature: 66 °C"),
    ]
    (curve,) = find_curves(Daemon(), facts, "It drew 655 W at 66 °C.")
    assert (curve.unit, curve.values) == ("W", (600.0, 655.0))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    made = SessionFiles()
    yield made
    made.close()


def test_conversations_are_kept_private_searched_and_renamed(files):
    for i, (question, answer) in enumerate(
        [("how hot?", "It was 66 °C in the HALL."), ("which jobs?", "Job 7.")]
    ):
        conversation = Conversation()
        conversation.changed = float(i)
        asked(conversation, question, answer)
        files.save(conversation.saved())
    found = files.find("")
    assert [s.title for s in found] == ["which jobs?", "how hot?"]
    assert files.folder.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in files.folder.iterdir()} == {0o600}
    (hit,) = files.find("hall HOW")
    assert (hit.title, hit.excerpt) == ("how hot?", "It was 66 °C in the HALL.")
    assert files.find("hall job") == ()
    files.rename(hit.key, "Heat")
    assert files.open(hit.key).title == "Heat"


def test_deleted_conversations_come_back_and_only_the_newest_are_kept(files, monkeypatch):
    monkeypatch.setattr(session_files, "MAX_SESSIONS", 2)
    monkeypatch.setattr(session_files, "MAX_DELETED", 1)
    keys = []
    for i in range(4):
        conversation = Conversation()
        asked(conversation, str(i), "x")
        files.save(conversation.saved())
        os.utime(files.folder / f"{conversation.key}.json", (i, i))
        keys.append(conversation.key)
    assert {s.key for s in files.find("")} == set(keys[2:])
    files.restore(keys[1])
    with pytest.raises(NotFound):
        files.restore(keys[0])
    files.delete(keys[1])
    with pytest.raises(NotFound):
        files.open(keys[1])


@pytest.mark.parametrize("damage", [b"{", b"[" * 100_000, b'{"key": "x"}', b"\xff\xfe"])
def test_a_damaged_file_is_set_aside_with_a_line(files, damage):
    conversation = Conversation()
    asked(conversation, "one", "1")
    files.save(conversation.saved())
    (files.folder / f"{'a' * 32}.json").write_bytes(damage)
    (files.folder / f"{'b' * 32}.json").write_bytes(
        msgspec.json.encode(conversation.saved())
    )  # another one's
    assert [s.title for s in files.find("")] == ["one"]
    assert "set aside" in files.notice
    assert len(list(files.folder.glob("*.damaged-*"))) == 2
    assert files.find("")
    assert files.notice == ""


def test_what_cannot_be_read_for_a_moment_stays_where_it_is(files):
    """As where too many files are open: neither the conversation nor the prompts are damaged."""
    conversation = Conversation()
    asked(conversation, "one", "1")
    files.save(conversation.saved())
    files.save_presets((Preset("a", "b"),))
    limits, spare = resource.getrlimit(resource.RLIMIT_NOFILE), os.dup(0)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
    try:
        with pytest.raises(NotFound, match="Too many open files"):
            files.open(conversation.key)
        with pytest.raises(UserError, match="Too many open files"):
            files.presets()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with pytest.raises(UserError, match="not overwritten"):
        files.save_presets(own_presets())  # whoever edits these never saw the user's own
    assert files.open(conversation.key) == conversation.saved()
    assert files.presets() == (Preset("a", "b"),)
    files.save_presets((Preset("a", "c"),))
    assert files.presets() == (Preset("a", "c"),)


def test_what_is_too_large_to_be_read_again_is_not_written_over_what_was(files, monkeypatch):
    conversation = Conversation()
    asked(conversation, "one", "1")
    files.save(kept := conversation.saved())
    monkeypatch.setattr(session_files, "MAX_BYTES", len(msgspec.json.encode(kept)))
    asked(conversation, "two", "2")
    with pytest.raises(UserError, match="start a new one"):
        files.save(conversation.saved())
    assert files.open(conversation.key) == kept


def test_a_link_is_not_followed(files, tmp_path):
    conversation = Conversation()
    asked(conversation, "one", "1")
    (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(conversation.saved()))
    files.folder.mkdir(parents=True)
    (files.folder / f"{conversation.key}.json").symlink_to(tmp_path / "elsewhere")
    assert files.find("") == ()


def test_a_second_window_reads_and_does_not_write(files):
    conversation = Conversation()
    asked(conversation, "one", "1")
    files.save(conversation.saved())
    second = SessionFiles()
    assert second.open(conversation.key) == conversation.saved()
    with pytest.raises(UserError, match="another window"):
        second.save(conversation.saved())
    files.close()
    second.save(conversation.saved())
    second.close()


def test_presets(files):
    assert files.presets() == own_presets()
    files.save_presets((Preset("a", "b"),))
    assert files.presets() == (Preset("a", "b"),)
    (files.folder / "presets.json").write_text("{")
    assert files.presets() == own_presets()
    assert "set aside" in files.notice
