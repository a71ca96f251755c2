import time

import msgspec
import pytest

from gpudeck.app.format.job_rows import (
    describe,
    details,
    device_labels,
    job_row,
    time_left,
    typed_command,
)
from gpudeck.app.format.results import earlier_results, summarize_result
from gpudeck.app.jobs.job_details import fact_table
from gpudeck.app.jobs.log_tail import LogTail
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.jobs import (
    Done,
    Event,
    Failed,
    JobSuspension,
    Progress,
    Running,
    queued,
)
from gpudeck.scheduler.protocol.log_file import dropped
from gpudeck.scheduler.protocol.wait_reasons import StartsNow
from gpudeck.scheduler.protocol.wait_texts import headline
from tests.gui import snapshots
from tests.gui.snapshots import NOW, job

SNAPSHOT = snapshots.cpu_snapshot()


def rows(snapshot):
    return [job_row(job, device_labels(snapshot), snapshot.time) for job in snapshot.jobs]


def test_who_starts_does_not_wait_and_many_devices_are_counted_in_a_row_and_named_in_full():
    made = SNAPSHOT.jobs[0]
    assert (
        job_row(msgspec.structs.replace(made, state=queued(StartsNow(), NOW)), {}, NOW).doing
        == "Starting now"
    )
    machine = snapshots.gpu_snapshot(8)
    held = tuple(state.device.id for state in machine.devices)
    eight = msgspec.structs.replace(made, state=Running("a", held, NOW, 1, 1, "b"))
    assert job_row(eight, {}, NOW).device == "8 GPUs"
    assert dict(details(eight, machine).facts)["Devices"] == ", ".join(f"GPU {i}" for i in range(8))


def test_each_state_says_what_it_must():
    by_id = {r.id: r for r in rows(SNAPSHOT)}
    assert [by_id[i].state for i in range(9, 0, -1)] == [
        "queued",
        "running",
        "starting",
        "done",
        "check failed",
        "failed",
        "cancelled",
        "lost",
        "done",
    ]
    assert by_id[9].doing == "Waiting: GPU 0 is held by job 8"
    assert by_id[8].doing == "42 % · 28 s left · timing"
    assert by_id[8].share == pytest.approx(0.42)
    assert (by_id[6].tflops, by_id[6].duration, by_id[6].device) == ("0.085", "18 s", "CPU")
    assert "out of memory" in by_id[4].doing


def test_failure_is_marked_also_where_only_the_check_failed():
    meaning = {r.id: r.meaning for r in rows(SNAPSHOT)}
    assert {i for i, m in meaning.items() if m == "failed"} == {2, 4, 5}


def test_a_job_told_to_stop_says_so():
    state = Running("a", ("cpu",), NOW - 5, 1, 1, "b", stopping=True)
    (found,) = rows(snapshots.snapshot(SNAPSHOT.devices, (job(1, state),)))
    assert (found.state, found.meaning) == ("stopping", "warm")


def test_nobody_knows_when_a_suspended_job_ends():
    progress = Progress(5, 10, time=NOW)
    states = [
        Running("a", ("cpu",), NOW - 50, 1, 1, "b", progress, suspension=away)
        for away in (None, JobSuspension("suspended", NOW))
    ]
    runs, suspended = rows(
        snapshots.snapshot(SNAPSHOT.devices, tuple(job(i, s) for i, s in enumerate(states)))
    )
    assert runs.end.startswith("≈ ") and suspended.end == ""


def test_time_left_needs_a_pace():
    assert time_left(Progress(0, 10, time=NOW), NOW - 5, NOW) is None
    assert time_left(Progress(5, 10, time=NOW - 6), NOW - 5, NOW) is None
    assert time_left(Progress(5, 10, time=NOW), NOW - 5, NOW + 1) == 4
    assert time_left(Progress(10, 10, time=NOW), NOW - 5, NOW + 9) == 0


def test_details_have_the_result_or_the_reason():
    found = {
        number: dict(details(j, SNAPSHOT).facts) for number, j in ((j.id, j) for j in SNAPSHOT.jobs)
    }
    assert found[6]["Backend"].startswith("flash (auto")
    assert found[6]["Verdict"] == "pass"
    assert "P99 15.8 ms" in found[6]["Timing"]
    assert found[4]["Reason"] == "exited with status 1: CUDA out of memory"
    once = job(4, Failed(NOW, NOW, "exit code 3: ValueError", 3))
    assert dict(details(once, SNAPSHOT).facts)["Reason"] == "exit code 3: ValueError", (
        "what the reason says already"
    )
    assert found[4]["Command"] == "python train.py --epochs=3"
    assert found[9]["Parameters"] == "seq 1024"


def test_a_result_that_is_none_of_ours_is_no_result():
    foreign = job(1, Done(NOW - 9, NOW, (), msgspec.Raw(b'{"loss": 0.1}')))
    assert summarize_result(foreign) is None
    assert rows(snapshots.snapshot((), (foreign,)))[0].tflops == ""


def test_a_parameter_that_was_chosen_by_itself_is_not_shown_as_zero():
    (done,) = (each for each in SNAPSHOT.jobs if each.id == 6)
    found = msgspec.json.decode(done.state.result)
    for heads, shown in ((0, False), (4, True)):
        found["params"]["kv_heads"] = heads
        raw = msgspec.Raw(msgspec.json.encode(found))
        summary = summarize_result(job(6, Done(NOW - 9, NOW, (), raw)))
        assert summary is not None and ("K/V heads 4" in summary.params) == shown
        assert "K/V heads 0" not in summary.params


def test_earlier_results_of_one_workload_oldest_first():
    jobs, now = SNAPSHOT.jobs, SNAPSHOT.time
    found = earlier_results(jobs, "attention", now)
    assert [(b.job, b.passed) for b in found] == [(1, True), (5, False), (6, True)]
    assert earlier_results(jobs, "gemm", now) == ()
    assert [b.job for b in earlier_results(jobs, "attention", now, most=2)] == [5, 6]


def test_earlier_results_tell_the_parameters_in_which_they_differ():
    def ran(number, seq):
        (done,) = (each for each in SNAPSHOT.jobs if each.id == 6)
        found = msgspec.json.decode(done.state.result)
        found["params"] = {"batch": 2, "seq": seq}
        raw = msgspec.Raw(msgspec.json.encode(found))
        made = job(number, Done(NOW - 9, NOW, (), raw))
        spec = msgspec.structs.replace(made.spec, workload="attention")
        return msgspec.structs.replace(made, spec=spec)

    other = earlier_results([ran(8, 64), ran(7, 32)], "attention", NOW)
    assert [each.params for each in other] == ["Sequence 32", "Sequence 64"]
    assert "Batch 2" in other[0].tooltip
    same = earlier_results([ran(8, 64), ran(7, 64)], "attention", NOW)
    assert [each.params for each in same] == ["", ""]


def test_a_log_is_followed_piece_by_piece():
    tail = LogTail(1)
    text = "größe 1\nzwei\n".encode()
    assert tail.feed(0, text[:3], 3) == "gr"
    assert tail.offset == 3
    assert tail.feed(99, b"not mine", 107) == ""
    assert tail.feed(3, text[3:], len(text)) == "öße 1\nzwei\n"


def test_a_log_is_followed_over_what_was_dropped():
    tail = LogTail(1)
    assert tail.feed(0, b"first\n{", 7) == "first\n"
    line = dropped(2**30).decode()
    assert tail.feed(7, line.encode() + b"last\n", 2**30 + 12) == "{" + line + "last\n"
    assert tail.feed(2**30 + 12, b"more\n", 2**30 + 17) == "more\n"


def test_a_long_log_begins_with_a_whole_line():
    tail = LogTail(1)
    assert tail.feed(1000, b"lf a line\nwhole\n", 1016) == "…\nwhole\n"
    assert tail.offset == 1016


def test_progress_reports_are_left_out_even_in_pieces():
    tail = LogTail(1)
    report = b'{"gpudeck": "progress", "done": 1, "total": 2}\n'
    assert tail.feed(0, b"a\n" + report[:20], 22) == "a\n"
    assert tail.feed(22, report[20:] + b'{"loss": 1}\nb', 60) == '{"loss": 1}\nb'


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07plain\n", "plain\n"),
        (b"10%\r20%\r\n", "10%\n20%\n"),
        (b"a\x00b\x1b", "a b "),
        (b"\xff\xfe\n", "\ufffd\ufffd\n"),
        (b"a\tb\n", "a    b\n"),
    ],
)
def test_output_cannot_steer_the_window(data, text):
    assert LogTail(1).feed(0, data, len(data)) == text


def test_no_fact_is_repeated_and_a_long_command_leaves_room_for_others():
    made = next(j for j in SNAPSHOT.jobs if j.id == 6)
    names = [name for name, _ in details(made, SNAPSHOT).facts if name != "Check"]
    assert len(names) == len(set(names))
    assert max(map(len, names)) <= len("Avg utilisation"), "the captions leave room for the values"
    long = msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, argv=("python", "x" * 5000))
    )
    rows = fact_table(details(long, SNAPSHOT).facts, (Event(NOW, "submitted"),), NOW)
    assert len(dict(rows)["Command"]) < 300
    assert rows[-1] == ("Command, whole", "python " + "x" * 5000)
    assert [name for name, _ in fact_table(details(made, SNAPSHOT).facts, (), NOW)].count(
        "Command, whole"
    ) == 0


@pytest.mark.parametrize(
    ("wait", "shown"),
    [
        (w.NoProcessor(2, 2), "Waiting for a CPU slot (2 of 2 in use)"),
        (w.GroupFull("g1", 1, 1), "Waiting for group g1 (1 of 1 running)"),
        (w.DependencyFailed(4, "failed"), "Can't run: job 4 failed"),
        (w.Held(7), "On hold; to release it: gpudeck resume 7"),
        (w.AfterJobs((3,), "prepare"), "Waiting for job 3 (prepare)"),
        (w.StartsNow(), "Starting now"),
        (w.QueuePaused(), "Waiting: the queue is paused"),
    ],
)
def test_a_list_says_why_a_job_waits(wait: w.WaitReason, shown: str) -> None:
    job = snapshots.job(9, queued(wait, NOW))
    assert job_row(job, {}, NOW).doing == shown
    assert describe(job).startswith(shown)


def test_the_command_of_a_workload_is_shown_as_it_is_typed():
    spec = job(1, Done(1.0, 2.0)).spec
    assert typed_command(spec) == "gpudeck run attention seq=1024"
    edited = msgspec.structs.replace(spec, argv=(*spec.argv, "--help"))
    assert typed_command(edited) == " ".join(edited.argv), "gpudeck run takes no such option"
    plain = msgspec.structs.replace(spec, workload=None, argv=("sh", "-c", "echo hi"))
    assert typed_command(plain) == "sh -c 'echo hi'"


def test_a_job_waits_for_the_one_that_frees_a_device_first():
    now = time.time()
    needs = w.Needs(1)
    soon = w.HeldBy("GPU 1", 4, "train-long", w.End(now + 600))
    late = w.HeldBy("GPU 0", 3, "eval", w.End(now + 6000))
    at = time.strftime("%H:%M", time.localtime(now + 600))
    said = str(headline(w.NoRoom(needs, (late, soon), 0, 0), now))
    assert said == f"Waits for train-long, free about {at}"
    limit = w.HeldBy("GPU 1", 4, "train-long", w.End(now + 600, latest=True))
    said = str(headline(w.NoRoom(needs, (limit,), 0, 0), now))
    assert said == f"Waits for train-long, free by {at} at the latest"
    unknown = w.HeldBy("GPU 1", 4, "train-long", None)
    said = str(headline(w.NoRoom(needs, (unknown,), 0, 0), now))
    assert said == "Waits for train-long on GPU 1"


def test_an_ended_job_says_when_and_what_it_measured():
    result = snapshots.raw(snapshots.result())
    row = job_row(job(1, Done(NOW - 60, NOW, (), result)), {}, NOW)
    assert row.doing == "0.085 TFLOP/s"
    assert row.end == time.strftime("%Y-%m-%d", time.localtime(NOW)), "long ago"
