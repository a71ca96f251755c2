"""All finders, one after the other: the quick ones first, as time is limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from assistant.housekeeping import caches, cores, duplicates, job_files, processes, shared_memory
from assistant.housekeeping.candidates import Candidate, directly_in, look_through
from assistant.housekeeping.find import Find, within
from assistant.housekeeping.grounds import Grounds
from assistant.housekeeping.needed import Needs
from assistant.housekeeping.watch import Watch
from scheduler.protocol.devices import Detail
from scheduler.protocol.jobs import Job


def survey(
    grounds: Grounds, watch: Watch, job: Callable[[int], Job], details: Iterable[Detail] = ()
) -> tuple[Find, ...]:
    """What may go, the largest first, and none that a job which waits or runs may need.

    `job` tells of a job by its number, or raises NotFound; `details` are those of the devices. Changes nothing. What could not be seen,
    and whether the time was enough, is in `watch`.
    """
    needs = Needs(grounds)
    found = [
        find for find in _all(grounds, watch, job, details) if not (find.place and needs.of(find))
    ]
    inner = _nested(found)
    return tuple(
        sorted(
            (f for f in found if f.place not in inner or not f.place),
            key=lambda f: (-f.bytes, f.place),
        )
    )


def _all(
    grounds: Grounds, watch: Watch, job: Callable[[int], Job], details: Iterable[Detail]
) -> Iterator[Find]:
    yield from processes.find(grounds, details, job)
    yield from shared_memory.find(grounds, watch)
    yield from job_files.find(grounds, watch, job)
    yield from caches.find(grounds, watch)
    files = list(_files(grounds, watch))
    yield from cores.find(grounds, files, watch)
    yield from duplicates.find(grounds, files, watch)


def _files(grounds: Grounds, watch: Watch) -> Iterator[Candidate]:
    for folder in grounds.ran:
        if not any(folder == named or within(folder, named) for named in grounds.folders):
            yield from directly_in(folder, watch)
    for folder in grounds.folders:
        yield from look_through(folder, grounds.state, watch)
    library = grounds.library
    if (
        grounds.folders
        and library
        and library.is_dir()
        and not any(within(library, folder) for folder in grounds.folders)
    ):
        yield from look_through(library, None, watch)


def _nested(finds: Iterable[Find]) -> frozenset[str]:
    """Those that lie in others: they go with them."""
    paths = {find.path: find.place for find in finds if find.place}
    return frozenset(
        place for path, place in paths.items() if not paths.keys().isdisjoint(path.parents)
    )
