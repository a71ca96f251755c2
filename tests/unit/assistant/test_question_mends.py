"""What a given reading of a question becomes: likely jobs, judgements, peaks, bounds and times."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from gpudeck.app.cli.main import make_parser
from gpudeck.assistant.answers import answer
from gpudeck.assistant.intents.composed import Composed, compose
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import Understood, understand
from gpudeck.assistant.query import printed
from gpudeck.assistant.query.costs import with_cost
from gpudeck.assistant.query.devices import devices
from gpudeck.assistant.query.request import COST, Order, Query, Span, Where
from gpudeck.assistant.query.rows import Column, Note, Row, Rows
from gpudeck.assistant.query.used import used_so_far
from gpudeck.assistant.reader.reading import Reading
from gpudeck.assistant.tools import help_texts
from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.language.text import Text
from gpudeck.language.words import words
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.devices import Reading as DeviceReading
from gpudeck.scheduler.protocol.jobs import Cancelled, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, Columns, DeviceState, Idle, Snapshot

NOW = datetime(2026, 11, 26, 15, 20).timestamp()
KNOWN = Known(("train", "llama-70b"), ("nightly",), (), ("lea", "ben"), "lea", ("llama-70b",))


def asked(head: str, *marks: str, text: str = "", languages: Any = (), **spans: str) -> Composed:
    """Return what is made of a reading."""
    found = tuple(spans.items())
    reading = Reading(((head, 0.9),), "", frozenset(marks), found, tuple((0, 0) for _ in found),
                      (), languages)  # fmt: skip
    return compose(reading, head, KNOWN, State(), NOW, text)


def of(head: str, *marks: str, **more: Any) -> Query:
    request = asked(head, *marks, **more).request
    assert isinstance(request, Query)
    return request


class Labelled:
    """Read a request as it is told."""

    def __init__(self, *heads: tuple[str, float], marks: tuple[str, ...] = (), second: str = "",
                 spans: dict[str, str] | None = None) -> None:  # fmt: skip
        self.heads, self.marks, self.second, self.spans = heads, marks, second, spans or {}

    def read(self, request: str, before: str = "") -> Reading:
        """Return the reading."""
        places = tuple((request.find(one), request.find(one) + len(one))
                       for one in self.spans.values())  # fmt: skip
        return Reading(self.heads, self.second, frozenset(self.marks), tuple(self.spans.items()),
                       places, ())  # fmt: skip


def understood(request: str, *heads: tuple[str, float], **more: Any) -> Understood:
    reader: Any = Labelled(*heads, **more)
    return understand(request, KNOWN, State(), NOW, reader)


def test_a_name_that_no_job_has_is_left_out_where_something_else_says_which_jobs() -> None:
    made = asked("ask jobs", "measure=state", user="ben", jobs="large model")
    assert made.request == Query("jobs", "state", user="ben")
    assert made.left == (("jobs", "large model"),)
    alone = of("ask jobs", "measure=state", jobs="large model")
    assert alone.jobs == ("large model",)  # so that the answer says that there is none


def test_a_number_in_words_and_the_size_of_a_model_name_a_job() -> None:
    ten = of("ask jobs", "measure=time_left", jobs="ten", text="when does job ten end")
    assert ten.jobs == (10,)
    two = of("ask jobs", "measure=state", jobs="two", text="the two that ran last")
    assert two.jobs == ("two",)
    assert of("ask jobs", user="ben", model="70b").jobs == ("llama-70b",)
    waiting = of("ask jobs", "measure=time_left", user="ben")
    assert waiting.states == ("running", "starting", "queued")


def test_the_number_of_no_gpu_is_that_of_a_job() -> None:
    found = Reading((("ask jobs", 0.9),), "", frozenset(), (("gpus", "10"),), ((0, 0),), ())
    eight = KNOWN._replace(gpus=8)
    assert compose(found, "ask jobs", eight, State(), NOW).request == Query("jobs", jobs=(10,))
    unknown = compose(found, "ask jobs", KNOWN, State(), NOW).request
    assert isinstance(unknown, Query) and unknown.devices == (10,)


def test_the_moment_of_a_peak_is_told_with_it() -> None:
    peak = of("ask gpus", "measure=power", "combine=max", time="yesterday")
    assert peak.when and peak.aggregate == "max"
    assert not of("ask gpus", "measure=power", "combine=max").when
    assert not of("ask gpus", "measure=power", "combine=mean", time="yesterday").when
    columns = (Column("power", "W"), Column("at", "moment"))
    rows = tuple(Row(f"gpu{n}", f"GPU {n}", (watts, NOW - 60.0))
                 for n, watts in enumerate((300.0, 700.0)))  # fmt: skip
    told = answer(peak, Rows("devices", columns, rows, Text("NVML"), NOW, peak.time), words("en"))
    assert "Power of GPU 1 was highest at 15:19: 700 W." in told and "| GPU 0 | 300 W |" in told


def test_the_unit_of_a_bound_says_what_is_bounded() -> None:
    assert of("ask jobs", "measure=energy", above="3 hours").where == (
        Where("duration", above=10800.0),
    )
    hot = of("ask gpus", "measure=power", above="80 °C").where
    assert hot == (Where("temp", above=80.0),)
    assert of("ask gpus", "measure=power", above="80").where == (Where("power", above=80.0),)


@pytest.mark.parametrize(
    ("letters", "since", "until"),
    [
        ("nachts", "2026-11-25 20:00", "2026-11-26 06:00"),
        ("semaine", "2026-11-19 15:20", "2026-11-26 15:20"),
        ("im dritten Quartal", "2026-07-01 00:00", "2026-10-01 00:00"),
        ("du 10 au 17", "2026-11-10 00:00", "2026-11-18 00:00"),
        ("vom 13. bis 20. November 2026", "2026-11-13 00:00", "2026-11-21 00:00"),
        ("from 3 to 9 March 2025", "2025-03-03 00:00", "2025-03-10 00:00"),
        ("in der Nacht von Dienstag auf Mittwoch", "2026-11-24 20:00", "2026-11-25 06:00"),
        ("le 12", "2026-11-12 00:00", "2026-11-13 00:00"),
    ],
)
def test_short_times_and_days_of_a_month_are_read(letters: str, since: str, until: str) -> None:
    span = of("ask jobs", time=letters).time
    ends = (datetime.fromisoformat(each).timestamp() for each in (since, until))
    assert span == Span(*ends)


def test_hier_is_yesterday_in_french_only() -> None:
    german = tuple(float(language == "de") for language in LANGUAGES)
    assert of("ask jobs", text="moin, ben hier. was läuft?", languages=german).time is None
    french = tuple(float(language == "fr") for language in LANGUAGES)
    assert of("ask jobs", text="et hier ?", languages=french).time is not None


def test_a_likely_question_is_answered_and_a_whole_list_is_not() -> None:
    heads = (("ask jobs", 0.4), ("ask gpus", 0.35))
    found = understood("gpu 2?", *heads, spans={"gpus": "2"})
    assert found.request == Query("jobs", devices=(2,)) and found.guessed and not found.choices
    reader: Any = Labelled(*heads, spans={"gpus": "2"})
    behind = understand("gpu 2?", KNOWN, State(order=Order("cancel", jobs=(7,))), NOW, reader)
    assert behind.request is None and behind.choices  # the order is not forgotten
    bare = understood("well", *heads)
    assert bare.request is None and len(bare.choices) == 2


def test_a_second_question_without_an_answer_is_named() -> None:
    lost = understood("what waits stop", ("ask jobs", 0.95), second="order cancel",
                      marks=("states=queued",))  # fmt: skip
    assert lost.left == (("second", "@second"),)
    assert "ask it by itself" in help_texts.without(lost.left, words("en"))[0]
    both = understood("what is ECC any errors", ("manual", 0.9), second="ask gpus",
                      marks=("measure=health",), spans={"term": "ECC"})  # fmt: skip
    assert [one.subject for one in (both.request, *both.also) if isinstance(one, Query)] == [
        "manual",
        "devices",
    ]


def test_a_refused_order_names_its_command() -> None:
    found = understood("cancel it if it gets hot", ("order cancel", 0.9), spans={"if": "hot"})
    assert found.refusal is not None and found.verb == "cancel"
    assert "`gpudeck cancel --help`" in help_texts.refusal(found.refusal, words("en"), found.verb)
    asked_back = understood("serial?", ("ask gpus", 0.9), marks=("measure=serial",))
    assert "`nvidia-smi" in help_texts.declined(asked_back.declined, words("en"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_table_is_exported_by_commands_that_there_are(language: Language) -> None:
    told = help_texts.declined("order export", words(language))
    commands = [one for one in told.split("`") if one.startswith("gpudeck ")]
    read = [make_parser().parse_args(one.split()[1:]) for one in commands]
    assert [one.prog.split()[-1] for one in read] == ["usage", "export", "jobs"]
    assert read[0].out is not None and read[1].out is not None and read[2].json


def test_parts_that_a_report_does_not_have_are_told() -> None:
    made = asked("order report", "by=user", user="ben", time="today")
    assert made.left == (("user", "ben"), ("by", "user"))


def test_a_cost_is_unknown_where_the_energy_is() -> None:
    query = Query("jobs", "energy", aggregate="sum", to=COST, amount=0.3)
    rows = Rows("jobs", (Column("energy", "J"),), (Row("job1", "job 1 (x)", (None,)),),
                Text("queue"), NOW)  # fmt: skip
    snapshot: Any = SimpleNamespace(settings=Settings())
    assert "unknown, as the energy is" in answer(
        query, with_cost(query, rows, snapshot), words("en")
    )


H100 = Device("GPU-a", 0, "NVIDIA H100", "nvidia")


class Daemon:
    """Answer with one hour of readings."""

    def history(self, device: str, fields: tuple[str, ...], *_: object) -> Columns:
        """Return three readings of each field."""
        times = [NOW - 3600.0, NOW - 1800.0, NOW]
        values = {"power": 400.0, "util": 50.0, "temp": 40.0, "mem_used": 2.0**30}
        columns = {name: [values.get(name)] * 3 for name in fields}
        return Columns(times, columns, {}, {})


def test_a_running_job_has_used_what_its_gpus_have_so_far() -> None:
    daemon: Any = Daemon()
    running = Running("a", ("GPU-a",), NOW - 3600.0, 1, 1, "b")
    found = {field: used_so_far(daemon, running, {"GPU-a": H100}, field, NOW)[0]
             for field in ("util", "memory")}  # fmt: skip
    assert found == {"util": 50.0, "memory": 2.0**30}
    none = Running("a", (), NOW - 3600.0, 1, 1, "b")
    assert str(used_so_far(daemon, none, {}, "energy", NOW)[1]) == "it uses no GPU"


def test_what_is_usual_stands_beside_the_value_of_one_gpu() -> None:
    daemon: Any = Daemon()
    values = {"temp": 62.0, "temp_limit": 89.0, "power": 700.0}
    state = DeviceState(H100, DeviceReading("GPU-a", NOW, values), Idle(0.0))
    now = Snapshot(1, NOW, (state,), (), Settings(), "nvml")
    query = Query("devices", "temp", devices=(0,))
    told = answer(query, devices(daemon, query, now), words("en"))
    assert "62 °C" in told and "GPU 0 has 40 °C at the mean and 40 °C at most" in told
    assert "slows itself down from 89 °C on. GPU 0 is idle." in told
    busy = DeviceState(H100, state.reading, Busy(HeldByJobs((7,))), (7,))
    used = Snapshot(1, NOW, (busy,), (), Settings(), "nvml")
    assert "GPU 0 is busy: job 7 runs." in answer(query, devices(daemon, query, used), words("en"))
    several = Snapshot(1, NOW, (state, state), (), Settings(), "nvml")
    assert "seven days" not in answer(Query("devices", "temp"),
                                      devices(daemon, Query("devices", "temp"), several),
                                      words("en"))  # fmt: skip


def test_the_course_of_a_loss_and_the_last_finite_one_are_told(home: object) -> None:
    folder = paths.job_folder(7)
    folder.mkdir(parents=True)
    (folder / "log").write_text("step 1 loss 3.0\nstep 2 loss 2.5\nstep 3 loss nan\n")
    job = Job(7, Spec(("train",), "train", "/"), 0.0, Queued())
    assert printed.losses(job)[:2] == [3.0, 2.5]
    assert "the last one before is 2.5" in str(printed.loss(job)[1])
    rows = Rows("jobs", (Column("loss"),), (Row("job7", "job 7 (train)", (2.5,)),), Text("queue"),
                NOW, notes=(Note("course", (7, 3.0, 2.5, 9)),))  # fmt: skip
    told = answer(Query("jobs", "loss", jobs=(7,)), rows, words("en"))
    assert "Over the last 9 values that job 7 printed, it went from 3 to 2.500." in told


@pytest.mark.parametrize("head", ["ask jobs", "ask gpus"])
@pytest.mark.parametrize(
    ("mark", "measure"), [("temperature", "temp"), ("fan", "fan"), ("clock", "clock_sm")]
)
def test_what_only_gpus_have_is_asked_of_the_gpus_of_a_job(
    head: str, mark: str, measure: str
) -> None:
    reading = Reading(((head, 0.9),), "", frozenset({"jobs=@it", f"measure={mark}"}), (), (), ())
    state = State((7,), about="job")
    made = compose(reading, head, KNOWN, state, NOW)
    assert made.request == Query("devices", measure, jobs=(7,)) and not made.left


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (Running("a", ("GPU-b",), NOW - 3600.0, 1, 1, "b"), ["GPU 1"]),
        (Cancelled(NOW, NOW - 3600.0, ("GPU-b",)), ["GPU 1"]),
        (Cancelled(NOW), ["GPU 0", "GPU 1"]),
        (Queued(), ["GPU 0", "GPU 1"]),
    ],
)
def test_the_gpus_of_a_job_are_those_that_it_holds_or_held_and_else_all(
    state: Any, shown: list[str]
) -> None:
    job = Job(7, Spec(("train",), "train", "/"), 0.0, state)
    daemon: Any = SimpleNamespace(job=lambda _: job, history=Daemon().history)
    states = tuple(
        DeviceState(device, DeviceReading(device.id, NOW, {"temp": 62.0}), Idle(0.0))
        for device in (H100, Device("GPU-b", 1, "NVIDIA H100", "nvidia"))
    )
    now = Snapshot(1, NOW, states, (), Settings(), "nvml")
    found = devices(daemon, Query("devices", "temp", jobs=(7,)), now)
    assert [row.label for row in found.rows] == shown
