"""Reports as data: every number is a fact's, and missing values are explained."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec
import pytest
from examples import CPU, CPU_STATE, DONE, HISTORY, JOBS, NOW, job, replayed, snapshot

from gpudeck.assistant.facts import gather, phrases
from gpudeck.assistant.reports.contents import compose
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import digest, markdown
from gpudeck.assistant.reports.material import Material
from gpudeck.assistant.reports.report import (
    Chart,
    Excerpt,
    Kind,
    Prose,
    Report,
    Table,
    packed,
    unpacked,
)
from gpudeck.assistant.writing.writer import Written, write
from gpudeck.language.languages import Language
from gpudeck.language.text import phrase
from gpudeck.language.words import words
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.failures import Failure
from gpudeck.scheduler.protocol.jobs import Done, Event, Failed, Job, Usage
from gpudeck.scheduler.protocol.snapshot import Alert, Columns

EVIL = "# x\n- **b** | `code` <script>alert(1)</script> [a](http://e) ![i](http://e/i) \x1b[31m"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]\d+)?")
USED = msgspec.structs.replace(DONE, usage=Usage(50.0, 3.5 * 2**30, 12_600.0, 88.0))
UNUSED = msgspec.structs.replace(
    USED, usage=Usage(absent={"energy": "its device does not tell its power"})
)
EVENTS = (
    Event(NOW - 100, "submitted"),
    Event(NOW - 80, "started", "attempt 1 on CPU"),
    Event(NOW - 30, "done"),
)
ALERTS = (Alert(3, "too hot", "g1", None, "GPU 1 is at 93 °C", NOW - 60, NOW - 50),)


def span(
    *jobs: Job,
    devices: int = 2,
    histories: dict[str, Columns] | None = None,
    alerts: tuple[Alert, ...] = ALERTS,
) -> Material:
    shown = snapshot(
        *(replayed(i) for i in range(devices)),
        jobs=jobs,
        source=phrase("replay of {file}", file="h100.trace.gz"),
    )
    read = {"g0": watched(99.0), "g1": watched(50.0)} if histories is None else histories
    return Material(
        "daily",
        NOW - 600,
        NOW,
        shown,
        jobs,
        read,
        alerts,
        facts=gather(shown, jobs, read, NOW - 600, NOW),
    )


def watched(util: float, apart: float = 60.0) -> Columns:
    """Return ten readings at this interval, with a gap in the middle."""
    times = [NOW - 10 * apart + apart * i for i in range(10)]
    columns: dict[str, list[float | None]] = {
        "util": [util] * 10,
        "power": [600.0] * 10,
        "temp": [71.0] * 10,
    }
    for values in columns.values():
        values[5] = None
    return Columns(times, columns, columns, columns)


def of_job(found: Job, log: bytes = b"", events: tuple[Event, ...] = EVENTS) -> Material:
    shown = snapshot(CPU_STATE, jobs=(found,))
    facts = gather(shown, (found,), HISTORY, NOW - 80, NOW - 30)
    return Material("job", NOW - 80, NOW - 30, shown, (found,), HISTORY, (), events, log, facts)


def composed(material: Material) -> Report:
    return compose(material, write(material.facts))


def texts(report: Report) -> list[str]:
    """Return all of its words except foreign ones."""
    found = [report.title]
    for block in (block for section in report.sections for block in section.blocks):
        match block:
            case Prose(text):
                found.append(text)
            case Table():
                found += [*(cell for row in block.rows for cell in row), block.note]
            case Chart(note=note):
                found.append(note)
    return found


def tables(report: Report) -> dict[str, Table]:
    return {
        block.title: block
        for section in report.sections
        for block in section.blocks
        if isinstance(block, Table)
    }


def charts(report: Report) -> list[Chart]:
    return [
        block for section in report.sections for block in section.blocks if isinstance(block, Chart)
    ]


@pytest.mark.parametrize(
    "material",
    [
        span(USED, *JOBS[:2]),
        span(*JOBS),
        span(),
        span(devices=0),
        of_job(USED),
        of_job(UNUSED),
        of_job(JOBS[0]),
        of_job(JOBS[3], b"x"),
    ],
    ids=[
        "daily",
        "all states",
        "no jobs",
        "no devices",
        "job",
        "job without figures",
        "job that waits",
        "job that failed",
    ],
)
def test_every_number_of_a_report_is_in_a_fact(material: Material) -> None:
    report = composed(material)
    known = {
        n
        for fact in report.facts
        for n in NUMBER.findall(f"{fact.text} {fact.name} {fact.said} {fact.source}")
    }
    assert {n for text in texts(report) for n in NUMBER.findall(text)} <= known
    assert report.sections[-1].title == "Sources"
    (sources,) = report.sections[-1].blocks
    assert isinstance(sources, Table)
    assert {row[0] for row in sources.rows} == {str(fact.source) for fact in report.facts}


def test_a_report_on_the_past_has_no_reading_of_the_present() -> None:
    """The readings of the snapshot are 71 and 72 °C, those of the history all 65 °C."""
    past = Columns([NOW - 7200, NOW - 3600], {"util": [50.0, 50.0], "temp": [65.0, 65.0]})
    shown = snapshot(
        replayed(0),
        replayed(1),
        source=phrase("replay of {file}", file="h100.trace.gz"),
        paused=True,
    )
    histories = {"g0": past, "g1": past}
    facts = gather(shown, JOBS, histories, NOW - 7200, NOW - 3600)
    read = Material("span", NOW - 7200, NOW - 3600, shown, JOBS, histories, (), facts=facts)
    told = "\n".join(texts(composed(read)))
    assert "65 °C" in told and "NVIDIA H100" in told
    for present in ("71 °C", "72 °C", "657 W", "633 TFLOP/s", "30 %", "idle", "paused", "now"):
        assert present not in told
    assert "unknown state" not in told


def test_missing_values_are_given_with_their_reasons() -> None:
    used = tables(composed(of_job(UNUSED)))["Outcome"]
    assert ("Energy", "no data") in used.rows
    assert "No data for energy: its device does not tell its power." in used.note
    assert "has not ended yet" in tables(composed(of_job(JOBS[0])))["Outcome"].note
    unread = composed(span(histories={}))
    (utilisation,) = charts(unread)
    assert utilisation.title == "Utilisation" and not utilisation.lines
    assert utilisation.note.count("no data (nothing was read in this time)") == 2
    assert "Temperature of REPLAY GPU 0" in tables(unread)["Devices, mean and highest"].note


def test_the_share_of_a_devices_memory_is_given() -> None:
    rows = dict(tables(composed(of_job(USED)))["Outcome"].rows)
    assert rows["Avg utilisation of its devices"] == "88 %"
    assert (rows["Peak memory on one device"], rows["Share of that device's memory"]) == (
        "3.5 GiB",
        "22 %",
    )
    assert "Share of that device's memory" not in dict(
        tables(composed(of_job(JOBS[0])))["Outcome"].rows
    )


def test_sources_that_disagree_are_both_given() -> None:
    material = of_job(USED)
    other = msgspec.structs.replace(
        next(f for f in material.facts if f.name == "job7.duration"), said="9 s", source="elsewhere"
    )
    report = composed(Material(**{**vars(material), "facts": (*material.facts, other)}))
    assert ("Took", "sources disagree: 50 s (queue), 9 s (elsewhere)") in tables(report)[
        "Outcome"
    ].rows


def test_jobs_are_listed_by_the_energy_they_used_and_devices_beside_them() -> None:
    little = msgspec.structs.replace(USED, id=5, usage=Usage(9.0, 2**30, 90.0, 3.0))
    energy = tables(composed(span(little, USED, JOBS[3])))["Energy"]
    assert [row[:2] for row in energy.rows][:2] == [
        ("Job 7 (attention)", "3.50 Wh"),
        ("Job 5 (attention)", "90 J"),
    ]
    # 600 W for 7 of the 9 minutes: the gap does not count.
    assert [row[:2] for row in energy.rows][2:4] == [
        ("all of REPLAY GPU 0", "70.0 Wh"),
        ("all of REPLAY GPU 1", "70.0 Wh"),
    ]
    assert "No data for Job 6:" in energy.note


def test_over_a_long_time_the_energy_counter_is_used_unless_it_was_reset() -> None:
    def total(counter: list[float], apart: float = 180.0) -> str:
        read = watched(99.0, apart)
        energy: dict[str, list[float | None]] = {"energy": [*counter]}
        both = Columns(
            read.times, {**read.columns, **energy}, {**read.low, **energy}, {**read.high, **energy}
        )
        return tables(composed(span(devices=1, histories={"g0": both})))["Energy"].rows[0][1]

    assert total([1000.0 + 100 * i for i in range(10)]) == "0.25 Wh"
    assert total([1000.0, 9000.0, 50.0, *(60.0 + i for i in range(7))]) == "210 Wh"
    assert total([1000.0] * 10, apart=2.0) == "2.33 Wh", (
        "a counter that is read twice a minute stands still over twenty seconds"
    )


def test_one_chart_shows_all_devices_with_gaps_or_the_busiest_of_many() -> None:
    (found,) = (chart for chart in charts(composed(span())) if chart.title == "Utilisation")
    assert [line.label for line in found.lines] == ["REPLAY GPU 0", "REPLAY GPU 1"]
    assert found.lines[0].mean[5] is None
    assert found.note.endswith("REPLAY GPU 1: mean 50 %, highest 50 %")
    assert str(found.source) == "REPLAY readings, history"
    many = composed(span(devices=12, histories={f"g{i}": watched(float(i)) for i in range(12)}))
    (found,) = (chart for chart in charts(many) if chart.title == "Utilisation")
    assert [line.label.split()[-1] for line in found.lines] == [str(i) for i in range(4, 12)]
    assert "Only the busiest devices are drawn; the table lists all." in texts(many)


def test_several_gpus_have_totals_and_no_column_is_empty() -> None:
    found = tables(composed(span(USED)))
    shown = found["Devices, mean and highest"]
    assert shown.head == ("Device", "Name", "Utilisation", "Temperature", "Power")
    assert shown.rows[-1] == ("all GPUs", "–", "74 %, 99 %", "71 °C", "1200 W")
    assert ("all GPUs", "140 Wh", "74 %") in [row[:3] for row in found["Energy"].rows]
    assert tables(composed(span(USED, devices=1)))["Devices, mean and highest"].rows[-1][0] != (
        "all GPUs"
    )


def test_each_attempt_of_a_job_is_told() -> None:
    again = msgspec.structs.replace(job(9, Failed(NOW - 9, NOW, "exit code 1", 1)), tries=1)
    events = (
        Event(NOW - 60, "submitted"),
        Event(NOW - 59, "started", "attempt 1"),
        Event(NOW - 50, "failed", "exit code 1"),
        Event(NOW - 50, "queued again", "for attempt 2 of 2, in 10 s"),
        Event(NOW - 40, "started", "attempt 2"),
        Event(NOW - 9, "lost", "its runner was killed"),
    )
    told = tables(composed(of_job(again, events=events)))["Attempts"].rows
    assert [(row[0], row[3]) for row in told] == [
        ("attempt 1", "failed: exit code 1"),
        ("attempt 2", "lost: its runner was killed"),
    ]
    assert "Attempts" not in tables(composed(of_job(USED)))


def test_the_log_of_a_failed_job_is_explained() -> None:
    failure = Failure("gpu memory", "CUDA out of memory ``` <b>")
    material = replace(of_job(JOBS[3]), failures=((6, failure),))
    section = composed(material).sections[1]
    assert section.title == "Why it failed"
    (told,) = section.blocks
    assert isinstance(told, Prose) and "Reduce the batch" in told.text
    assert "CUDA out of memory" in told.text


def test_the_log_of_a_job_is_quoted_without_what_steers_a_terminal() -> None:
    log = (
        b'one\n{"gpudeck": "progress", "done": 1, "total": 2}\n'
        b"\x1b[31mred\x1b[0m\x07\nwas\rstands here\n" + EVIL.encode()
    )
    (quoted,) = (
        b for s in composed(of_job(USED, log)).sections for b in s.blocks if isinstance(b, Excerpt)
    )
    lines = quoted.text.split("\n")
    assert lines[:4] == ["one", "red", "stands here", "# x"]
    assert all(c.isprintable() or c == "\n" for c in quoted.text)
    assert quoted.source == "log of job 7"


def test_a_report_survives_json() -> None:
    report = composed(span(*JOBS))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert unpacked(packed(report)) == report
    with pytest.raises(UserError, match="cannot be read"):
        unpacked(b"x")


def test_hostile_names_add_no_row_and_no_section() -> None:
    evil = (job(3, Failed(NOW - 9, NOW, EVIL), EVIL), job(1, Done(NOW - 9, NOW), EVIL))
    tame = (job(3, Failed(NOW - 9, NOW, "x"), "x"), job(1, Done(NOW - 9, NOW), "x"))
    for made in (span, lambda *jobs: of_job(jobs[0])):
        found, expected = composed(made(*evil)), composed(made(*tame))
        assert [[type(b) for b in s.blocks] for s in found.sections] == [
            [type(b) for b in s.blocks] for s in expected.sections
        ]
        assert {t.title: len(t.rows) for t in tables(found).values()} == {
            t.title: len(t.rows) for t in tables(expected).values()
        }
        assert "\n" not in found.title
        assert not any(
            "\n" in cell for table in tables(found).values() for row in table.rows for cell in row
        )


def test_devices_are_called_the_jobs_only_if_it_held_them() -> None:
    def titles(found: Job) -> list[str]:
        return [section.title for section in composed(of_job(found)).sections]

    assert "Its devices meanwhile" in titles(USED)
    assert "Devices meanwhile, of which it held none" in titles(JOBS[0])
    assert "Devices meanwhile, of which it held none" in titles(job(2, Done(NOW - 9, NOW)))


def test_the_cpu_is_named_as_the_device() -> None:
    assert CPU.note in "\n".join(texts(composed(of_job(USED))))


@pytest.mark.parametrize(
    ("language", "found"),
    [
        ("de", ("Tagesbericht, 13. November 2025", "Energie", "alle GPUs", "3,50 Wh")),
        ("fr", ("Rapport du jour, 13 novembre 2025", "Énergie", "tous les GPU", "3,50 Wh")),
        ("es", ("Informe diario, 13 de noviembre de 2025", "Energía", "todas las GPU", "3,50 Wh")),
    ],
)  # fmt: skip
def test_a_report_is_in_its_language_with_its_numbers_and_dates(
    language: Language, found: tuple[str, ...]
) -> None:
    lost = job(4, Failed(NOW - 9, NOW, "exit code 1: lr was 0.5", 1), "x")
    made = compose(span(USED, lost), Written("Kurz.", "template"), words(language))
    page, text = html(made), markdown(made)
    for each in (*found, words(language).text("done")):
        assert each in page and each in text
    assert f'lang="{language}"' in page and made.title in page
    assert "lr was 0.5" in text, "what a job printed is quoted as it is"
    english = {s.title for s in composed(span(USED, lost)).sections} - {
        "Jobs",
        "Sources",
        "Utilisation",
        "",
    }
    assert english.isdisjoint(s.title for s in made.sections)
    for word in ("no data", "No data", " mean ", "highest", "Written", "readings"):
        assert word not in text


def test_a_report_says_when_readings_begin_within_its_time() -> None:
    late = replace(span(), begun=NOW - 120)
    said = f"Readings begin {words('en').moment(NOW - 120, NOW)}; there is no data before that."
    assert said in markdown(composed(late)) and said not in markdown(composed(span()))


def test_a_digest_is_the_first_paragraph() -> None:
    told = digest(composed(span(*JOBS)))
    title, first = told.split("\n\n")
    assert title.startswith("**Daily report") and "of which 1 failed and 1 got lost" in first


@pytest.mark.parametrize("kind", ["span", "daily"])
def test_a_report_names_its_time_once(kind: Kind) -> None:
    report = composed(replace(span(*JOBS), kind=kind))
    text, when = markdown(report), phrases.stretch(report.since, report.until)
    assert text.casefold().count(when.casefold()) == 1, text
    assert "Written at" in text and " jobs ran" in text
