"""Jobs are found by words and by what became of them, page by page; the store and the plain rule
find the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Failed,
    Job,
    Lost,
    Queued,
    Running,
    Spec,
    State,
    queued,
)
from gpudeck.scheduler.protocol.search import ENDED, MAX_SEARCHED, NEWEST, Search, matches
from gpudeck.scheduler.protocol.units import parse_moment
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store import store as module

PASSED, FAILED = (
    msgspec.Raw(f'{{"verdict": "{verdict}"}}'.encode()) for verdict in ("pass", "fail: out is off")
)
JOBS: list[tuple[Spec, State]] = [
    (
        Spec(
            ("python", "train.py", "--lr=0.1"),
            "TRÄIN",
            "/",
            notes="the long one",
            tags=("paper", "v2"),
        ),
        Done(1.0, 20.0, ("GPU-1",)),
    ),
    (
        Spec(("python", "eval.py"), "eval", "/", group="night"),
        Failed(1.0, 30.0, "exit code 3", 3, ("GPU-1", "GPU-10")),
    ),
    (
        Spec(("accel",), "attention", "/", params={"seq": "1024"}),
        Done(1.0, 40.0, ("GPU-10",), FAILED),
    ),
    (
        Spec(("accel",), "attention", "/", params={"seq": "2048"}),
        Done(1.0, 50.0, ("GPU-10",), PASSED),
    ),
    (Spec(("sleep",), '100% "quoted" _', "/", group="night"), Cancelled(60.0)),
    (Spec(("sleep",), "lost", "/"), Lost(1.0, 70.0, "power cut")),
    (Spec(("sleep",), "strange", "/"), Done(1.0, 80.0, (), msgspec.Raw(b'{"verdict": 7}'))),
    (
        Spec(("python", "-c", "x" * MAX_SEARCHED, "beyond"), "big", "/"),
        Running("a", ("GPU-1",), 85.0, 1, 2, "boot"),
    ),
    (
        Spec(("python", "train.py"), "waits", "/", group="night"),
        queued(StartFailed("GPU 0 is held by job 8"), 0.0),
    ),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "home" / "gpudeck.sqlite")
    for at, (spec, state) in enumerate(JOBS):
        job = made.insert(spec, 10.0 * (at + 1), Queued())
        made.update(msgspec.structs.replace(job, state=state))
    yield made
    made.close()


def every(store: Store) -> list[Job]:
    return [store.get(n) for n in range(len(JOBS), 0, -1)]


def found_in(store: Store, search: Search, viewer: int | None = None) -> list[int]:
    """Return all pages: one may be short on a slow machine."""
    found, before = list[int](), NEWEST
    while before:
        page, on = store.find(search, before, 100, viewer)
        found, before = [*found, *(job.id for job in page)], on or 0
    return found


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (Search(), [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (Search("train"), [9, 1]),
        (Search("träin"), [1]),
        (Search("python TRAIN.py paper"), [1]),
        (Search("paper python zzz"), []),
        (Search("1024"), [3]),
        (Search("4"), [4, 3]),  # a parameter, and a number of a job
        (Search("100% _"), [5]),  # no wildcards
        (Search('"quoted"'), [5]),
        (Search("beyond"), []),
        (Search("x" * 50), [8]),
        (Search(outcomes=("done",)), [7, 4, 1]),
        (Search(outcomes=("failed", "lost", "rejected")), [6, 3, 2]),
        (Search(outcomes=ENDED, group="night"), [5, 2]),
        (Search(group=""), [8, 7, 6, 4, 3, 1]),
        (Search(device="GPU-1"), [8, 2, 1]),
        (Search(device="GPU"), []),
        (Search(since=50.0), [9, 8, 7, 6, 5, 4]),
        (Search(until=30.0), [2, 1]),
        (Search("accel", ("rejected",), "", "GPU-10", 35.0, 35.0), [3]),
    ],
    ids=str,
)
def test_the_store_and_the_rule_find_the_same_jobs(
    store: Store, search: Search, found: list[int]
) -> None:
    assert [job.id for job in every(store) if matches(search, job)] == found
    assert found_in(store, search) == found


def test_pages_have_no_gaps_even_if_the_search_times_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, seconds, window in ((2, 9.0, 2048), (2, 9.0, 3), (100, 0.0, 2), (1, 0.0, 1)):
        monkeypatch.setattr(module, "FIND_S", seconds)
        monkeypatch.setattr(module, "WINDOW", window)
        before: int | None = NEWEST
        found: list[int] = []
        answers = 0
        while before is not None:
            page, before = store.find(Search("python"), before, limit)
            found += [job.id for job in page]
            answers += 1
            assert len(page) <= limit
        assert found == [9, 8, 2, 1], (limit, seconds, window)
        assert answers > 1


def test_a_job_is_found_by_its_outcome(store: Store) -> None:
    job = store.get(9)
    spec = msgspec.structs.replace(job.spec, notes="now noted", group="day")
    store.update(
        msgspec.structs.replace(job, spec=spec, state=Failed(1.0, 90.0, "x", 1, ("GPU-1",)))
    )
    for search in (
        Search("noted"),
        Search("waits", ("failed",)),
        Search(group="day", device="GPU-1"),
    ):
        assert found_in(store, search) == [9]
    assert found_in(store, Search(outcomes=("queued",))) == []


def test_a_moment_is_a_span_before_now_or_a_date() -> None:
    assert parse_moment("7d", 1e9) == 1e9 - 7 * 86400
    assert parse_moment("2026-11-20T14:30+00:00", 0.0) == 1795185000.0
    assert parse_moment("2026-11-21", 0.0) - parse_moment("2026-11-20", 0.0) == 86400
    for wrong in ("", "yesterday", "-3d", "2026-13-40"):
        with pytest.raises(UserError, match="7d or 2h"):
            parse_moment(wrong, 0.0)


A, B = 1001, 1002
WORDS = (
    (Search("secret"), []),
    (Search("2"), []),
    (Search("plain"), [1]),
    (Search("1"), [1]),
    (Search(outcomes=("rejected",)), []),
    (Search(outcomes=("done",)), [2]),
    (Search(), [3, 2, 1]),
)


def test_what_is_hidden_from_a_user_decides_nothing_of_what_they_find(store: Store) -> None:
    """A page of one job ends where the next begins, which must not tell what the rest holds."""
    with_user = msgspec.structs.replace
    shared = Store(store._file.with_name("shared.sqlite"))
    jobs = [
        shared.insert(with_user(JOBS[8][0], name="plain", user=A), 1.0, Queued()),
        shared.insert(with_user(JOBS[2][0], name="secret", user=B), 1.0, JOBS[2][1]),
        shared.insert(with_user(JOBS[0][0], argv=("secret",), user=B), 1.0, Queued()),
    ]
    for search, found in WORDS:
        assert found_in(shared, search, A) == found, search
        assert [j.id for j in reversed(jobs) if matches(search, j, A)] == found, search
    pages = {word: shared.find(Search(word), NEWEST, 1, A) for word in ("secret", "absent", "TRÄ")}
    assert set(map(str, pages.values())) == {"([], None)"}
    assert found_in(shared, Search("secret"), B) == found_in(shared, Search("secret")) == [3, 2]
    shared.close()
