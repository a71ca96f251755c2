"""An invented search of a kernel on an H100, as the Workloads page shows one."""

from __future__ import annotations

from gpudeck.accel.result import PASS, Check, Result, Timing
from gpudeck.accel.search.journal import Entry, Proposer
from gpudeck.accel.search.resources import Resources
from gpudeck.accel.search.verdict import Race, Roofline, Source, Span, Verdict
from gpudeck.accel.workloads.search import speed_of
from gpudeck.app.workloads.search_record import SearchRecord
from gpudeck.language.text import Number, phrase
from gpudeck.scheduler.protocol.jobs import Done, Job, Spec
from tests.gui.snapshots import H100, NOW, raw

_PARAMS: dict[str, str | int | float | bool] = {
    "task": "softmax", "rows": 4096, "columns": 4096, "dtype": "float32"
}  # fmt: skip
_TRIED: tuple[tuple[int, int, float, Proposer], ...] = (
    (1, 4, 78.4, "sample"), (4, 8, 112.6, "sample"), (2, 2, 91.0, "sample"), (1, 8, 69.9, "sample"),
    (2, 8, 66.2, "surrogate"), (1, 16, 71.3, "surrogate"), (2, 16, 63.8, "surrogate"),
)  # fmt: skip


def _entries() -> tuple[Entry, ...]:
    timed = [
        Entry({"rows": rows, "warps": warps}, "timed", us, seconds=0.6, by=by)
        for rows, warps, us, by in _TRIED
    ]
    spilled = Entry(
        {"rows": 16, "warps": 1},
        "pruned",
        why=Resources(255, 0, 312, 32).unfit(90),
        seconds=0.2,
        by="sample",
    )
    wrong = Entry(
        {"rows": 8, "warps": 4},
        "wrong",
        why=phrase(
            "its error is {found}, above {allowed}",
            found=Number(0.2, ".3g"),
            allowed=Number(1.9e-6, ".3g"),
        ),
        seconds=0.4,
        by="surrogate",
    )
    return (*timed[:3], spilled, *timed[3:5], wrong, *timed[5:])


def record() -> SearchRecord:
    """Return what the page reads of it."""
    race = Race(
        "torch.compile max-autotune", (), (), Span(1.08, 1.061, 1.095), Span(1.0, 0.993, 1.006),
        1.21, 47.2, 47.9, 60,
    )  # fmt: skip
    verdict = Verdict(
        "softmax", {"rows": 4096, "columns": 4096}, "float32", H100, {},
        Source("gpudeck.accel.search.templates", "triton_rows"), "", "0" * 64, 1, (), (), (), (),
        race, Roofline(6.7e7, 1.34e8, 40.1, "data sheet", 1980.0), NOW - 300,
    )  # fmt: skip
    return SearchRecord(_entries(), verdict, None)


def job(number: int, device: str) -> Job:
    """Return the job that searched."""
    verdict = record().verdict
    assert verdict is not None and verdict.race is not None
    began, ended = NOW - 900, NOW - 300
    result = Result(
        "search", H100, "rows 2, warps 16", verdict.text, _PARAMS, PASS,
        (Check(phrase("worst error of {n} hidden trials", n=26), 2.1e-7, 1.9e-6),),
        Timing(0.0638, 0.0638, 0.0652, 0.066, 0.0631, 0.067, 60), 6.7e7, 1.05, 1.02, began,
        ended, {"torch": "2.11.0", "triton": "3.6.0"}, began, ended,
        figures=(speed_of(verdict.race),),
    )  # fmt: skip
    argv = ("python", "-P", "-m", "gpudeck.accel.workloads.search")
    shown = {name: str(value) for name, value in _PARAMS.items()}
    spec = Spec(argv, "search", "/home/ada", {"USER": "ada"}, 1, "search", shown)
    state = Done(began, ended, (device,), raw(result))
    return Job(number, spec, began - 1, state)
