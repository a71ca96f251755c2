"""Who may do what in a daemon that several users share, and what they see of each other.

Users are known by the kernel's word (SO_PEERCRED). Root and the members of ADMINS administer the
queue. Everybody sees that a job of another user exists, its name, its user and what it holds; what
it runs, and everything that it prints or was given, only its user does.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError, no_job
from gpudeck.scheduler.protocol.jobs import NO_RESULT, Done, Failed, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wire import ADMINS, MEMBERS
from gpudeck.scheduler.verbs import (
    change,
    control,
    jobs,
    orders,
    submit,
)
from gpudeck.scheduler.verbs.request import Request

Owners = Callable[[Sequence[int]], Mapping[int, int | None]]
"""Returns the users of those of these jobs that exist."""
ANOTHERS = "the job belongs to another user"
_UNMAPPED = 65534
"""What the kernel says of every user of a container that this machine does not know."""
HIDDEN = "(another user's)"
FOR_ADMINS = f"the shared daemon does this for administrators only (group {ADMINS})"
FOR_ROOT = "the shared daemon does this for root only"
_MOST_NAMED = 10_000
_ADMIN_SETTINGS = {"drained", "fair_share"}
"""Settings that administrators may change; the others decide what root does."""


def is_admin(uid: int) -> bool:
    """Return whether a user administers the queue."""
    return uid == 0 or is_member(uid, ADMINS)


def is_member(uid: int, group: str) -> bool:
    """Return whether a user is in a group of this machine."""
    try:
        members, name = grp.getgrnam(group), pwd.getpwuid(uid)
    except KeyError:
        return False
    return name.pw_name in members.gr_mem or name.pw_gid == members.gr_gid


def authorize(request: Request[Any], uid: int, owners: Owners) -> None:
    """Raise UserError where this user may not make this request."""
    if uid == _UNMAPPED:
        raise UserError(phrase("the shared daemon does not know this user, as in a container"))
    asked: Any = request  # with a permission of an owner, it has the job
    match "everybody" if uid == 0 else request.permission:
        case "everybody":
            _check_priority(request, uid)
        case "owner":
            _check_own(asked.job, uid, owners)
        case "owner or administrators":
            if not is_admin(uid):
                _check_own(asked.job, uid, owners)
            _check_priority(request, uid)
        case "owners or administrators":
            if not is_admin(uid):
                _check_many(asked, uid, owners)
        case "administrators":
            if not is_admin(uid):
                raise UserError(FOR_ADMINS)
        case _:
            _check_root(request, uid)


def _check_root(request: Request[Any], uid: int) -> None:
    """Raise UserError unless an administrator changes settings that are theirs."""
    if not isinstance(request, control.Configure):
        raise UserError(FOR_ROOT)
    if not is_admin(uid):
        raise UserError(FOR_ADMINS)
    if not request.changes.keys() <= _ADMIN_SETTINGS:
        raise UserError(FOR_ROOT)


def _check_many(
    request: change.CancelMany | change.Restore | orders.RecordOrder, uid: int, owners: Owners
) -> None:
    """Raise UserError unless every job that the request names is this user's."""
    named, count = list(request.jobs), len(request.jobs)
    if isinstance(request, change.CancelMany):
        if request.group:
            raise UserError(phrase("on a shared daemon only administrators cancel a whole group"))
        named += [] if request.array is None else [request.array]  # all of it is of one user
        count += sum(max(last - first + 1, 1) for first, last in request.ranges)
    if count > _MOST_NAMED:
        raise UserError(phrase("name at most {limit} jobs", limit=_MOST_NAMED))
    if isinstance(request, change.CancelMany):
        for first, last in request.ranges:
            named += range(first, last + 1)
    if any(owner != uid for owner in owners(named).values()):  # the reply names missing ones
        raise UserError(ANOTHERS)


def _check_place(specs: Iterable[Spec]) -> None:
    """Raise UserError where a job is for a cluster, which would run it as root's."""
    if any(spec.where for spec in specs):
        raise UserError(phrase("jobs of a shared daemon run on this machine, not in clusters"))


def _check_own(job: int, uid: int, owners: Owners) -> None:
    found = owners([job])
    if job not in found:
        raise NotFound(no_job(job))
    if found[job] != uid:
        raise UserError(ANOTHERS)


def _check_priority(request: Request[Any], uid: int) -> None:
    """Raise UserError where a user would overtake others."""
    wanted: list[int | None] = []
    if isinstance(request, submit.Submit | submit.Foresee):
        specs: tuple[Spec, ...] = (request.spec,)
    else:
        specs = request.specs if isinstance(request, submit.SubmitMany) else ()
    if uid != 0:
        _check_place(specs)
    wanted = [spec.priority for spec in specs]
    if isinstance(request, change.Edit):
        wanted = [request.changes.priority]
    if any(priority and priority > 0 for priority in wanted) and not is_admin(uid):
        raise UserError(phrase("on a shared daemon only administrators raise the priority above 0"))


def check_groups(request: Request[Any], uid: int, bookings: Iterable[Booking]) -> None:
    """Raise UserError where a user puts a job into a group for which GPUs are reserved.

    Administrators do that for everybody, and members of a group of the machine with the same name
    for themselves.
    """
    if isinstance(request, submit.SubmitMany):
        named = {spec.group for spec in request.specs}
    elif isinstance(request, submit.Submit):
        named = {request.spec.group}
    else:
        named = {request.changes.group or ""} if isinstance(request, change.Edit) else set()
    now = time.time()
    reserved = {b.group for b in bookings if b.group and b.user is None and b.end > now}
    for group in sorted(named & reserved):
        if not (is_admin(uid) or is_member(uid, group)):
            raise UserError(
                phrase(
                    "GPUs are reserved for the group {group}, into which only "
                    "administrators put jobs and users who are in a group of this"
                    " machine with that name",
                    group=group,
                )
            )


def visible(value: Any, uid: int) -> Any:
    """Return a reply as this user may see it."""
    if uid == 0:
        return value
    match value:
        case Job():
            return value if value.spec.user == uid else _hidden(value)
        case jobs.Page() | Snapshot():
            found = tuple(visible(job, uid) for job in value.jobs)
            value = msgspec.structs.replace(value, jobs=found)
            if isinstance(value, Snapshot):
                return msgspec.structs.replace(value, settings=visible(value.settings, uid))
            return value
        case Settings():
            return msgspec.structs.replace(value, webhook="", on_job_end="", clusters={}, hosts={})
        case Detail():
            return _without_commands(value, uid)
        case tuple():
            return tuple(visible(one, uid) for one in value)
    return value


def _hidden(job: Job) -> Job:
    """Return another user's job without what it runs, and what it was given or printed."""
    spec = msgspec.structs.replace(
        job.spec, argv=(HIDDEN,), cwd="/", env={}, workload=None, params={}, notes="", tags=(),
        notify=(), container="", mounts=(), container_env=(),
        inherited=None,
    )  # fmt: skip
    state = job.state
    if isinstance(state, Done | Failed):
        state = msgspec.structs.replace(state, result=NO_RESULT, large=False)
    if isinstance(state, Failed):
        reason = (
            phrase("could not be started")
            if state.code is None
            else phrase("exit status {n}", n=state.code)
        )
        state = msgspec.structs.replace(state, reason=reason, quote="")
    elif isinstance(state, Running):
        state = msgspec.structs.replace(state, attempt="", note="", progress=None)
    elif not isinstance(state, Queued) and hasattr(state, "attempt"):
        state = msgspec.structs.replace(state, attempt="")
    return msgspec.structs.replace(job, spec=spec, state=state, cut=False)


def _without_commands(detail: Detail, uid: int) -> Detail:
    """Return details without the command lines of other users' processes."""
    try:
        own = pwd.getpwuid(uid).pw_name
    except KeyError:
        own = ""

    def hidden(processes: tuple[Process, ...]) -> tuple[Process, ...]:
        return tuple(
            process if process.user == own else msgspec.structs.replace(process, command="")
            for process in processes
        )

    return msgspec.structs.replace(
        detail,
        processes=hidden(detail.processes),
        cpu_processes=hidden(detail.cpu_processes),
    )


def open_socket_to_members(path: Path) -> None:
    """Let the members of MEMBERS connect to the socket; nobody else may. Raises UserError."""
    try:
        group = grp.getgrnam(os.environ.get("GPUDECK_GROUP") or MEMBERS).gr_gid
    except KeyError as e:
        raise UserError(
            phrase(
                "there is no group {members}. Create it: groupadd --system {members}",
                members=MEMBERS,
            )
        ) from e
    os.chown(path, 0, group)
    path.chmod(0o660)
