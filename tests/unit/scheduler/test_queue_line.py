"""The waiting jobs in their turn, whatever happens to them: as if they were sorted anew each time."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.jobs import Cancelled, Job, Queued, Running, Spec, State, turn
from scheduler.queue.line import Line

STATES: tuple[State, ...] = (Queued(), Running("n", (), 0.0, 1, 1, "b"), Cancelled(1.0))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(-1, 1), st.sampled_from([None, 0.5, 3.5]), st.sampled_from(STATES)), max_size=40))
def test_the_line_is_what_sorting_gives(changes: list[tuple[int, int, float | None, State]]) -> None:
    line, jobs = Line(), {}
    for number, priority, place, state in changes:
        job = Job(number, Spec(("x",), "x", "/", priority=priority), 0.0, state, place)
        jobs[number] = job
        line.put(job)
        line.put(msgspec.structs.replace(job))
        waiting = sorted((j for j in jobs.values() if isinstance(j.state, Queued)), key=turn)
        assert list(line) == [j.id for j in waiting]
        assert line.ids() == {j.id for j in waiting}
        assert len(line) == len(waiting)
        assert all((n in line) == (n in line.ids()) for n in range(8))
