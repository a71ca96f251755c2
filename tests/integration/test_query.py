"""Queries of a recorded H100 and of real jobs, and what the command line says of the rows."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.assistant.answers import answer as worded
from gpudeck.assistant.query.execute import execute
from gpudeck.assistant.query.readings import recorded_since
from gpudeck.assistant.query.request import COST, NEWEST, Query, Span, Where
from gpudeck.assistant.query.rows import Rows
from gpudeck.assistant.query.users import user_of
from gpudeck.assistant.reports.material import of_span
from gpudeck.language.words import Words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Done, Queued, Running, Spec, Usage
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.protocol.users import user_name
from gpudeck.scheduler.store.store import Store
from tests.integration.deck import python, running
from tests.support import eventually, state_folder

pytestmark = pytest.mark.xdist_group("query")
WAIT_S = 30.0
WORDS = Words("en")
OTHER = 65534
"""A user whose jobs are in the queue, too."""


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a daemon that replays an H100 as four GPUs and has run jobs."""
    with state_folder(tmp_path_factory.mktemp("query") / "home"):
        trace = paths.assets() / "h100.trace.gz"
        settings.save(Settings(source=f"replay:{trace}*4", model_folder=TEMPLATE))
        _past_runs()
        with Client() as client:
            eventually(lambda: len(client.snapshot().devices) == 4)
            eventually(lambda: all(state.reading for state in client.snapshot().devices))
            yield client


def _past_runs() -> None:
    """Store five runs of 100 to 140 s, which used 1 to 5 kJ."""
    store, now = Store(paths.store_file()), time.time()
    spec = Spec(("train",), "past", "/", gpus=1)
    for number in range(5):
        (job,) = store.insert_all([spec], now - 9000, Queued())
        ended = now - 3000 + number
        state = Done(ended - 100 - 10 * number, ended)
        usage = Usage(100.0, 2.0**30, 1000.0 * (number + 1), 50.0)
        store.update(msgspec.structs.replace(job, state=state, usage=usage))
    theirs = Spec(("train",), "theirs", "/", gpus=2, user=OTHER)
    (job,) = store.insert_all([theirs], now - 9000, Queued())
    state = Done(now - 7200, now - 3600, ("replay0", "replay1"))
    store.update(msgspec.structs.replace(job, state=state))
    store.close()


def values(rows: Rows) -> dict[str, object]:
    return {row.key: row.values[0] for row in rows.rows}


def test_totals_means_and_winners_are_those_of_the_rows(deck: Client) -> None:
    temps = values(each := execute(deck, Query("devices", "temp")))
    assert list(temps) == ["replay0", "replay1", "replay2", "replay3"] and each.total is None
    span = Span(time.time() - 60, time.time())
    total = execute(deck, Query("devices", "power", aggregate="sum", time=span))
    assert total.total == pytest.approx(sum(float(v) for v in values(total).values()))  # type: ignore[arg-type]
    some = execute(deck, Query("devices", "temp", devices=(1, 2), aggregate="mean", time=span))
    assert set(values(some)) == {"replay1", "replay2"}
    assert some.total == pytest.approx(sum(map(float, values(some).values())) / 2)  # type: ignore[arg-type]
    best = execute(deck, Query("devices", "temp", aggregate="max", extreme=True))
    found = values(best)
    assert found[best.best] == best.total == max(found.values())  # type: ignore[type-var]
    assert next(iter(found)) == best.best, "the highest is the first row"


def test_bounds_keep_the_rows_that_fit(deck: Client) -> None:
    all_of_them = execute(deck, Query("devices", "temp", where=(Where("temp", above=-1.0),)))
    assert len(all_of_them.rows) == 4
    assert not execute(deck, Query("devices", "temp", where=(Where("temp", above=900.0),))).rows


def test_a_device_that_is_missing_is_named(deck: Client) -> None:
    with pytest.raises(NotFound, match="no GPU 7 on this machine; it has GPU 0, GPU 1"):
        execute(deck, Query("devices", "temp", devices=(7,)))
    some = execute(deck, Query("devices", "temp", devices=(1, 7)))
    assert len(some.rows) == 1 and ("no device", (7,)) in [tuple(note) for note in some.notes]


def test_a_time_without_readings_has_no_value(deck: Client) -> None:
    long_ago = Span(time.time() - 7200, time.time() - 7100)
    (row,) = execute(deck, Query("devices", "temp", devices=(0,), time=long_ago)).rows
    assert set(row.values) == {None}
    at = Span(time.time() - 7200, time.time() - 7200, point=True)
    (row,) = execute(deck, Query("devices", "temp", devices=(0,), time=at)).rows
    assert row.values == (None,), "no reading of the present stands for the past"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (Query("beauty"), "nothing is called 'beauty'"),
        (Query("devices", "beauty"), "have no measure 'beauty'"),
        (Query("devices", user="eve"), "devices cannot be chosen by user"),
        (Query("jobs", user="eve"), "no jobs are of a user called eve. There are jobs of: .+"),
        (Query("jobs", states=("happy",)), "there is no state happy"),
        (Query("devices", "temp", aggregate="median"), "no aggregate"),
        (Query("jobs", jobs=(4711,)), "no job 4711"),
        (Query("jobs", jobs=("nobody",)), "no job called nobody"),
    ],
)
def test_what_the_table_does_not_allow_is_refused(deck: Client, query: Query, why: str) -> None:
    with pytest.raises(UserError, match=why):
        execute(deck, query)


def test_jobs_are_ranked_and_added_up(deck: Client) -> None:
    total = execute(deck, Query("jobs", "energy", jobs=("past",), aggregate="sum"))
    assert total.total == 15000.0, "a sum is over all jobs of a name"
    every = execute(deck, Query("jobs", "energy", states=("done",), aggregate="sum", by="name"))
    assert values(every)["name past"] == 15000.0
    best = execute(deck, Query("jobs", "energy", aggregate="max", extreme=True, limit=1))
    assert best.best == "job5" and values(best) == {"job5": 5000.0}


def test_gpu_hours_are_those_of_a_user_within_a_time(deck: Client) -> None:
    name, now = user_name(OTHER), time.time()
    hours = Query("jobs", "gpu_hours", user=name, aggregate="sum")
    assert execute(deck, hours).total == pytest.approx(2.0)
    half = Query("jobs", "gpu_hours", user=name, aggregate="sum", time=Span(now - 5400, now))
    assert execute(deck, half).total == pytest.approx(1.0, abs=0.05)
    each = execute(deck, Query("jobs", "gpu_hours", by="user", aggregate="max", extreme=True))
    assert each.best == f"user {name}" and each.total == pytest.approx(2.0)
    counted = execute(deck, Query("jobs", by="user"))
    assert values(counted)[f"user {name}"] == 1 and len(counted.rows) == 2
    (row,) = execute(deck, Query("jobs", "user", jobs=("theirs",))).rows
    assert row.values == (name,)


def test_an_estimate_rests_on_earlier_runs(deck: Client) -> None:
    deck.pause()
    job = deck.submit(python("1"), name="past").job
    rows = execute(deck, Query("jobs", "estimate", jobs=(job.id,)))
    deck.cancel(job.id)
    deck.pause(False)
    assert rows.rows[0].values[0] == pytest.approx(120.0)
    (note,) = [note for note in rows.notes if note.kind == "estimate"]
    assert note.values[:5] == pytest.approx((job.id, 120.0, 104.0, 136.0, 5))


def test_the_cause_of_a_failure_is_quoted_from_the_log(deck: Client) -> None:
    code = "print('RuntimeError: CUDA out of memory. Tried 2 GiB'); raise SystemExit(1)"
    job = deck.submit(python(code), name="oom")
    deck.wait(job.id, WAIT_S)
    rows = execute(deck, Query("jobs", "failure", jobs=(NEWEST,)))
    (note,) = [note for note in rows.notes if note.kind == "failure"]
    assert note.values == (job.id, "gpu memory", "RuntimeError: CUDA out of memory. Tried 2 GiB")


def test_an_answer_without_jobs_says_which_condition_none_of_them_meets(deck: Client) -> None:
    deck.pause()
    waits = deck.submit(python("1"), name="one", group="sweep", gpus=0).job
    theirs = user_name(OTHER)
    of_them = Query("jobs", states=("queued",), user=theirs, group="sweep")
    other_group = Query("jobs", states=("queued",), group="nightly")
    told = [worded(one, execute(deck, one), WORDS) for one in (of_them, other_group)]
    german = worded(of_them, execute(deck, of_them), Words("de"))
    deck.cancel(waits.id)
    deck.pause(False)
    named = f"job {waits.id} (one)"
    assert told[0].startswith(f"{theirs}, group sweep: No job is waiting.")
    mine = user_of(waits)
    assert f"1 such job is of another user: {named}, {mine}." in told[0].replace("\\", "")
    assert told[1].startswith("group nightly: No job is waiting.")
    assert f"1 such job is not in this group: {named}." in told[1].replace("\\", "")
    assert german.startswith(f"{theirs}, Gruppe sweep: Kein Job wartet.")
    nobodys = Query("jobs", states=("queued",), group="sweep")
    assert worded(nobodys, execute(deck, nobodys), WORDS) == "group sweep: No job is waiting."


def test_an_answer_without_bookings_tells_those_of_others(deck: Client) -> None:
    begin = time.time() + 86400
    booking = Booking(("REPLAY-2", "REPLAY-3"), begin, begin + 3600, None, "sweep")
    number = deck.reserve(booking).number
    leas, first = Query("bookings", user="lea"), Query("bookings", devices=(0,))
    told = [worded(one, execute(deck, one), WORDS) for one in (leas, first)]
    rows = execute(deck, leas)
    deck.cancel_booking(number)
    assert told[0].startswith("lea has no booking.") and told[1].startswith(
        "No booking keeps GPU 0."
    )
    for one in told:
        assert "There is this booking: GPU 2, GPU 3 for group sweep, " in one
    assert not rows.rows, "a program that asks for lea's bookings gets no others"
    assert "keeps" not in worded(first, execute(deck, first), WORDS).partition(".")[2]


def test_a_job_that_prints_is_not_stuck(deck: Client) -> None:
    job = deck.submit(python("import time; print('on', flush=True); time.sleep(60)"), name="on").job
    assert isinstance(running(deck, job), Running)
    rows = execute(deck, Query("jobs", "stall", jobs=(job.id,)))
    deck.cancel(job.id)
    assert rows.rows[0].values[0] == "not stuck"


def test_the_command_line_prints_a_sentence_and_json(
    deck: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gpudeck.app.cli.main import main

    assert main(["query", "devices", "temp", "--gpus", "1-2", "--aggregate", "mean"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Temperature of GPU 1 and GPU 2, mean: ") and "| --- |" not in said
    assert "REPLAY of h100.trace.gz" in said
    assert main(["query", "devices", "temp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["rows"]) == 4 and told["columns"][0]["unit"] == "°C"
    assert told["source"] == "REPLAY readings"
    assert main(["query", "capacity", "--memory", "20GB"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(("By free memory it would fit on GPU", "No GPU has that much"))
    assert "A job for 1 GPU with 18.6 GiB on each cannot start, though: a recording" in told
    assert told.count("Free memory now: ") == 1
    assert main(["query", "devices", "temp", "--where", "temp!3"]) == 1


def test_a_time_before_the_first_reading_says_when_readings_begin(deck: Client) -> None:
    now = deck.snapshot().time
    for query in (
        Query("devices", "power", time=Span(now - 8 * 86400, now - 7 * 86400)),
        Query("devices", "util", time=Span(now - 7 * 86400, now)),
        Query("jobs", jobs=(), time=Span(now - 8 * 86400, now - 7 * 86400)),
        Query("devices", "energy"),
        Query("devices", "idle_time"),
        Query("devices", "energy", by="day"),
        Query("devices", "power", devices=(0,), time=Span(now - 3600, now),
              other=Query("devices", "power", devices=(0,), time=Span(now - 7200, now - 3600))),
    ):  # fmt: skip
        rows = execute(deck, query)
        (first,) = [note.values[0] for note in rows.notes if note.kind == "since"]
        assert isinstance(first, float) and now - 600 < first <= deck.snapshot().time
        assert "no data before" in worded(query, rows, Words("en"))
    recent = execute(deck, Query("devices", "power", time=Span(now, now + 1)))
    assert all(note.kind != "since" for note in recent.notes)


def test_what_is_usual_is_told_since_readings_begin(deck: Client) -> None:
    query = Query("devices", "temp", devices=(0,))
    told = worded(query, execute(deck, query), WORDS)
    assert re.search(r"Readings begin .*\d\d:\d\d\. Since then, GPU 0 has ", told)
    idle = Query("devices", "energy", states=("idle",), ahead=3600.0, aggregate="sum")
    told = worded(idle, execute(deck, idle), WORDS)
    assert re.search(r"the lowest since readings begin, which is .*\d\d:\d\d, for 1 h", told)
    begun = of_span(deck, deck.snapshot().time - 86400.0).begun
    assert begun is not None and begun > deck.snapshot().time - 600


def test_capacity_says_the_free_memory_of_each_gpu_of_a_recording(deck: Client) -> None:
    rows = execute(deck, query := Query("capacity", amount=20e9))
    (free,) = [note.values for note in rows.notes if note.kind == "free"]
    assert sorted(str(name) for name in free[::2]) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert list(free[1::2]) == sorted(free[1::2], key=lambda value: -float(value or 0))
    assert "Free memory now: GPU" in worded(query, rows, Words("en"))


def test_a_time_for_which_gpus_are_asked_for_counts_the_bookings(deck: Client) -> None:
    begin = time.time() + 86400
    booking = Booking(tuple(f"REPLAY-{n}" for n in range(4)), begin, begin + 3600, None, "sweep")
    number = deck.reserve(booking).number
    query = Query("capacity", gpus=2, time=Span(begin + 60, begin + 600))
    said = worded(query, execute(deck, query), WORDS)
    deck.cancel_booking(number)
    assert said.startswith("No GPU is known to be free then (")
    assert "Free memory" not in said and "a recording is shown" in said


def test_the_cost_is_energy_times_the_price_or_says_that_none_is_set(deck: Client) -> None:
    query = Query("devices", "energy", aggregate="sum", text=COST)
    assert "the price of a kWh is not set" in worded(query, execute(deck, query), Words("en"))
    priced = msgspec.structs.replace(query, amount=0.31)
    rows = execute(deck, priced)
    (cost,) = [note.values for note in rows.notes if note.kind == "cost"]
    assert isinstance(rows.total, float) and cost[:2] == (rows.total / 3.6e6, 0.31)
    assert "at 0.31 for each" in worded(priced, rows, Words("en"))


def test_a_question_without_a_time_is_answered_with_the_time_that_is_told(deck: Client) -> None:
    cost = Query("devices", "energy", aggregate="sum", text=COST, amount=0.5)
    told = worded(cost, execute(deck, cost), WORDS)
    assert told.startswith("The cost of the past 24 hours is ") and "This is about" not in told
    for query in (Query("devices", "energy"), Query("devices", "idle_time")):
        assert "This is about the past 24 hours." in worded(query, execute(deck, query), WORDS)
    days = Query("devices", "energy", by="day")
    assert "This is about the past 14 days." in worded(days, execute(deck, days), WORDS)
    now = deck.snapshot().time
    for query in (Query("devices", "energy", time=Span(now - 60, now)), Query("devices", "power")):
        assert "This is about" not in worded(query, execute(deck, query), WORDS)


def test_what_energy_will_cost_rests_on_the_power_of_now(deck: Client) -> None:
    query = Query("devices", "energy", aggregate="sum", ahead=3600.0, text=COST, amount=0.5)
    rows = execute(deck, query)
    ahead, cost = (next(n for n in rows.notes if n.kind == kind) for kind in ("ahead", "cost"))
    power, seconds = ahead.values
    assert isinstance(power, float) and seconds == 3600.0 and power > 0
    assert rows.total == pytest.approx(power * 3600.0)
    assert cost.values[:2] == (pytest.approx(power / 1000), 0.5)


def test_rules_of_alerts_are_all_settings_of_alerts(deck: Client) -> None:
    rows = execute(deck, Query("alerts", "rules"))
    labels = {row.label for row in rows.rows}
    assert {"alert_temperature", "alert_memory", "alert_stuck_job"} <= labels
    assert all(label.startswith("alert_") for label in labels)


def test_the_largest_model_halves_with_its_bits(deck: Client) -> None:
    rows = execute(deck, Query("models", "largest"))
    sizes = [float(row.values[0] or 0) for row in rows.rows]
    assert sizes[0] > 1e9
    assert sizes[1:] == pytest.approx([2 * sizes[0], 4 * sizes[0]])
    recorded = any(note.kind == "replay" for note in rows.notes)
    assert recorded == deck.snapshot().is_recorded


def test_no_model_is_served_and_jobs_have_tags(deck: Client) -> None:
    assert execute(deck, Query("models", "served")).rows == ()
    job = deck.submit(python("1"), name="tagged", tags=("Blue",), hold=True)
    assert [row.key for row in execute(deck, Query("jobs", tag="blue")).rows] == [f"job{job.id}"]
    tags = execute(deck, Query("jobs", "tags", jobs=(job.id,)))
    assert tags.rows[0].values == ("Blue",)
    waiting = execute(deck, Query("jobs", states=("queued",)))
    assert f"job{job.id}" not in values(waiting), "a held job is told apart"
    grouped = deck.submit(python("1"), name="grouped", group="night", hold=True)
    of_group = execute(deck, Query("jobs", "reason", states=("queued",), group="night"))
    assert f"job{grouped.id}" in values(of_group), "why nothing of its group runs"
    deck.cancel(job.id)


def test_the_run_with_the_lowest_loss_is_found_by_held_out_data_first(deck: Client) -> None:
    codes = (
        'print("step=1 loss=2.5")', """print('{"loss": 0.5, "held_out": 3.5}')""", "print('none')",
        "import time; print('loss=2.25', flush=True); time.sleep(60)",
    )  # fmt: skip
    runs = [deck.submit(python(code), group="sweep").job.id for code in codes]
    query = Query("jobs", "loss", jobs=tuple(runs))
    wanted = {f"job{n}": loss for n, loss in zip(runs, (2.5, 3.5, None, 2.25), strict=True)}
    eventually(lambda: values(execute(deck, query)) == wanted)
    lowest = msgspec.structs.replace(query, aggregate="min", extreme=True)
    assert execute(deck, lowest).best == f"job{runs[3]}"
    deck.cancel(runs[3])


def test_a_loss_is_read_from_the_last_lines_of_other_output(deck: Client) -> None:
    codes = ("print('step 7 loss 3.5'); print('step 8 loss 3.25, saved')",
             "print('step 7 loss 3.5'); print('loss is NaN at step 8')", "print('lossless')",
             )  # fmt: skip
    runs = [deck.submit(python(code)).job.id for code in codes]
    for run in runs:
        deck.wait(run, WAIT_S)
    query = Query("jobs", "loss", jobs=tuple(runs))
    rows = execute(deck, query)
    assert values(rows) == {
        f"job{n}": loss for n, loss in zip(runs, (3.25, None, None), strict=True)
    }
    said = worded(query, rows, WORDS)
    assert "no finite number" in said
    assert "no loss was recorded as a value" in said


def test_a_job_of_somebody_else_is_not_said_to_be_ones_own(deck: Client) -> None:
    me = user_name(os.getuid())
    query = Query("jobs", "state", jobs=("theirs",), user=me)
    rows = execute(deck, query)
    assert "User of job" in (said := worded(query, rows, WORDS))
    assert f": {me}" not in said
    both = msgspec.structs.replace(query, jobs=("theirs", "past"))
    assert [row.label.partition("(")[2] for row in execute(deck, both).rows] == ["past)"]


def test_a_running_job_is_told_with_how_far_it_is_its_loss_and_its_end(deck: Client) -> None:
    said = '{"gpudeck": "progress", "done": 25, "total": 100}'
    code = f"import time; print({said!r}); print('loss=2.2537', flush=True); time.sleep(60)"
    job = deck.submit(python(code), name="going").job.id
    query, english = Query("jobs", jobs=("going",)), Words("en")
    wanted = "25 % complete and loss 2.254."
    eventually(lambda: wanted in worded(query, execute(deck, query), english))
    told = worded(query, execute(deck, query), english)
    assert f"Job {job} needs about " in told
    assert f"Job {job} needs about " in worded(Query("jobs"), execute(deck, Query("jobs")), english)
    deck.cancel(job)


def test_energy_has_its_cost_at_the_price_that_is_asked_with(deck: Client) -> None:
    for query in (Query("jobs", "energy", jobs=("past",), aggregate="sum", to=COST, amount=0.5),
                  Query("devices", "energy", ahead=3600.0, text=COST, amount=0.5)):  # fmt: skip
        rows = execute(deck, query)
        (note,) = [note for note in rows.notes if note.kind == "cost"]
        values = [row.values[0] for row in rows.rows]
        kwh = sum(value for value in values if isinstance(value, float)) / 3.6e6
        assert note.values == (pytest.approx(kwh), 0.5, "", "")


def test_a_model_needs_so_many_gpus(deck: Client) -> None:
    rows = execute(deck, Query("models", "largest", amount=70e9))
    needed = {row.label: row.values[0] for row in rows.rows}
    assert needed == {"16 bit": 3, "8 bit": 2, "4 bit": 1, "AdamW": 17}
    text = worded(Query("models", "largest", amount=70e9), rows, Words("en"))
    assert "70 billion parameters" in text and "This machine has 4." in text


def test_energy_is_told_by_day_and_hours_by_user(deck: Client) -> None:
    days = execute(deck, Query("devices", "energy", by="day", aggregate="max", extreme=True))
    assert days.best.startswith("day ")
    assert "has the highest value" in worded(Query("devices", "energy", by="day"), days, WORDS)
    hours = Query("jobs", "gpu_hours", by="user", aggregate="max", extreme=True)
    assert worded(hours, execute(deck, hours), WORDS).startswith(user_name(OTHER))
    with pytest.raises(NotFound, match="no GPU of this machine is called 3090"):
        execute(deck, Query("devices", "temp", model="3090"))
    there = execute(deck, Query("devices", "temp", model="h100", exclude=(0, 1)))
    assert [row.label for row in there.rows] == ["GPU 2", "GPU 3"]


def test_what_was_done_with_a_job_is_told_and_that_nobody_knows_by_whom(deck: Client) -> None:
    job = deck.submit(["true"], hold=True)
    deck.cancel(job.id)
    query = Query("events", jobs=(job.id,))
    text = worded(query, execute(deck, query), WORDS)
    assert "cancelled" in text
    assert "does not record who did it" in text
    assert "No limits are set" in worded(Query("limits"), execute(deck, Query("limits")), WORDS)


def test_what_runs_at_a_time_to_come_is_estimated(deck: Client) -> None:
    query = Query("jobs", ahead=30 * 86400.0)
    assert "will probably run" in worded(query, execute(deck, query), WORDS)


def test_how_long_gpus_were_idle_and_busy_is_the_time_that_was_read(deck: Client) -> None:
    now = time.time()
    span = Span(now - 86_400.0, now)
    begun = recorded_since(deck, deck.snapshot())
    assert begun is not None
    idle, busy = (
        execute(deck, Query("devices", name, time=span)) for name in ("idle_time", "busy_time")
    )
    for first, second in zip(idle.rows, busy.rows, strict=True):
        both = [value for value in (first.values[0], second.values[0]) if value is not None]
        assert len(both) == 2 and 0 < sum(map(float, map(str, both))) <= now + 5 - begun
    assert "idle time" in worded(Query("devices", "idle_time", time=span), idle, WORDS).casefold()


def test_what_idle_gpus_will_cost_rests_on_their_lowest_power(deck: Client) -> None:
    query = Query("devices", "energy", states=("idle",), ahead=86400.0, aggregate="sum", text=COST,
                  amount=0.3)  # fmt: skip
    rows = execute(deck, query)
    assert ", the lowest since readings begin, which is " in worded(query, rows, WORDS)
    assert worded(query, rows, WORDS).startswith("The cost is ")


def test_what_limits_a_group_stands_beside_its_jobs_and_the_wait_is_of_those_that_started(
    deck: Client,
) -> None:
    deck.set_group("pairs", limit=2)
    ended = deck.submit(python("1"), name="first", group="pairs").job
    deck.wait(ended.id, WAIT_S)
    deck.submit(python("1"), name="second", group="pairs", hold=True)
    told = execute(deck, Query("jobs", group="pairs"))
    assert "At most 2 jobs of group pairs run at once." in worded(
        Query("jobs", group="pairs"), told, Words("en")
    )
    waited = execute(deck, Query("jobs", "waited", group="pairs", aggregate="mean"))
    assert [row.key for row in waited.rows] == [f"job{ended.id}"]
