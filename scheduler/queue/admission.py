"""What is refused when it is submitted, because it could never run here."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import unlimited
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import check_limits
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.wait_reasons import ReplayShown, Unsatisfiable
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.blockers import unsatisfiable_need
from gpudeck.scheduler.queue.lanes import Lanes, Requirements, requirements
from gpudeck.scheduler.queue.placement import Availability, make_slots

MAX_LANES = 2000
"""Waiting jobs of one user differ in up to so many combinations of what they need: every pass over
the queue looks at each (see `lanes`)."""
MAX_ALL_LANES, OWN_LANES = 3000, 100
"""Those of all users, and of one user however many the others have."""
MAX_CHARACTERS = 10_000
MAX_TAGS = 100
MAX_ARGUMENT = 32 * os.sysconf("SC_PAGE_SIZE")
"""Bytes of one argument, with the NUL at its end: MAX_ARG_STRLEN of execve(2)."""
MAX_COMMAND = 6 * 2**20
"""Bytes of a whole command, and of an environment: execve(2) refuses more, whatever the stack."""
MAX_AFTER = 1000
"""Jobs that have to end before one: whether they have is asked again and again while it waits."""
MAX_ALL_AFTER = 100_000
"""Jobs that have to end before those of one submission, added up."""
MAX_ENTRIES = 1000
"""Parameters of a workload, limits that are inherited, folders or variables of a container."""
MAX_SENT = 2**16
"""Bytes of environment that are sent to a cluster."""


def check_spec(
    spec: Spec,
    devices: Sequence[Device],
    availability: Availability = Availability(),  # noqa: B008 - a constant
) -> None:
    """Raise UserError where this job could never run on this machine, whatever its environment.

    Args:
        devices: empty where they are unknown, or do not matter.
    """
    _check_command(spec)
    check_lists(spec)
    check_text(spec)
    check_limits(spec)
    if spec.gpus < 0:
        raise UserError(phrase("a job needs 0 or more GPUs, not {value}", value=spec.gpus))
    if spec.retry_lost and not spec.retries:
        raise UserError(
            phrase("a lost job is retried as often as a failed one: add a number of retries")
        )
    if spec.when_idle and not spec.gpus:
        raise UserError(phrase("a job that runs while GPUs are idle needs a GPU: --gpus 1"))
    if spec.memory < 0:
        raise UserError(
            phrase("a job reserves 0 or more bytes of memory, not {memory}", memory=spec.memory)
        )
    if not spec.gpus and (spec.memory or spec.gpu_type):
        raise UserError(phrase("memory and a type of GPU need a number of GPUs, such as --gpus 1"))
    if (obstacle := device_obstacle(spec, devices, availability)) is not None:
        raise UserError(phrase("the job cannot run: {sub}", sub=explain(obstacle, 0.0)))


def device_obstacle(
    spec: Spec, devices: Sequence[Device], availability: Availability
) -> Unsatisfiable | ReplayShown | None:
    """Return what the job needs and the devices cannot offer; None where they are unknown."""
    if not spec.gpus or not devices or spec.where:
        return None
    slots = make_slots((), devices, availability._replace(drained=frozenset()))
    return unsatisfiable_need(spec, slots) if slots else ReplayShown()


def _check_command(spec: Spec) -> None:
    if not spec.argv or not spec.argv[0]:
        example = "gpudeck submit -- python train.py"
        raise UserError(phrase("no command was given. Example: {command}", command=example))
    if any("\0" in text for text in (*spec.argv, spec.cwd)):
        raise UserError(phrase("a command or a folder cannot contain a NUL character"))
    long = (text for text in spec.argv if len(text) >= MAX_ARGUMENT // 4)
    if any(len(text) >= MAX_ARGUMENT or len(text.encode()) >= MAX_ARGUMENT for text in long):
        raise UserError(
            phrase(
                "an argument must be shorter than {limit} KiB: write it to a "
                "file, and pass the file's name",
                limit=MAX_ARGUMENT // 1024,
            )
        )
    if sum(map(len, spec.argv)) + len(spec.argv) > MAX_COMMAND:
        raise UserError(
            phrase(
                "a command must be shorter than {limit} MiB: write it to a "
                "file, and pass the file's name",
                limit=MAX_COMMAND // 2**20,
            )
        )


def check_lists(spec: Spec) -> None:
    """Raise UserError where a list or a text that no command needs is too long."""
    if len(spec.after) + len(spec.after_any) > MAX_AFTER:
        raise UserError(
            phrase(
                "a job runs after up to {limit} others: submit one that waits"
                " for some of them and does nothing, and name that",
                limit=MAX_AFTER,
            )
        )
    limits = spec.inherited.limits if spec.inherited else ()
    entries = tuple(map(len, (spec.params, limits, spec.mounts, spec.container_env)))
    texts = (
        spec.cwd, spec.gpu_type, spec.workload or "", spec.where, *spec.params,
        *spec.params.values(),
    )  # fmt: skip
    if max(entries) > MAX_ENTRIES or any(len(text) > MAX_ARGUMENT for text in texts):
        raise UserError(
            phrase(
                "a job has up to {limit} parameters, folders and variables of"
                " its container, and each, like its folder, has up to "
                "{limit2} KiB",
                limit=MAX_ENTRIES,
                limit2=MAX_ARGUMENT // 1024,
            )
        )


def check_dependencies(specs: Sequence[Spec]) -> None:
    """Raise UserError where the jobs of a submission run after too many others."""
    if sum(len(spec.after) + len(spec.after_any) for spec in specs) > MAX_ALL_AFTER:
        raise UserError(
            phrase(
                "the jobs of one submission run after up to {limit} others, "
                "added up: submit fewer at once",
                limit=MAX_ALL_AFTER,
            )
        )


def check_text(spec: Spec) -> None:
    """Raise UserError where a text of the job is too long to be listed."""
    texts = (
        spec.name, spec.group, spec.notes, "".join(spec.tags), spec.container,
        "".join(spec.mounts), "".join(spec.container_env),
    )  # fmt: skip
    if any("\0" in text or len(text) > MAX_CHARACTERS for text in texts):
        raise UserError(
            phrase(
                "a name, a group, notes, all tags, a container, all of its "
                "folders and all of its variables hold up to {limit} "
                "characters and no NUL",
                limit=MAX_CHARACTERS,
            )
        )
    if len(spec.tags) > MAX_TAGS:
        raise UserError(phrase("a job has up to {n} tags", n=MAX_TAGS))


def check_host_limits(spec: Spec, problem: Message) -> None:
    """Raise UserError where the job's host memory or CPUs cannot be limited.

    Args:
        problem: why nobody's can be; empty where they can.
    """
    if problem and (spec.host_memory or spec.cpus):
        raise UserError(unlimited(problem))


def check_environment(env: Mapping[str, str], where: str) -> None:
    """Raise UserError where no process can have this environment, or it is too large.

    Args:
        where: the cluster it is sent to; empty for this machine.
    """
    if any("\0" in text for text in (*env, *env.values())):
        raise UserError(phrase("an environment cannot contain a NUL character"))
    if sum(len(name) + len(value) + 2 for name, value in env.items()) > MAX_COMMAND:
        raise UserError(
            phrase("an environment must be smaller than {limit} MiB", limit=MAX_COMMAND // 2**20)
        )
    if any(not name or "=" in name for name in env):
        raise UserError(
            phrase("the name of an environment variable cannot be empty or contain '='")
        )
    if where and sum(len(name) + len(value) for name, value in env.items()) > MAX_SENT:
        raise UserError(
            phrase(
                "{where} accepts up to {limit} KiB of environment: name only "
                "the variables that the job needs",
                where=where,
                limit=MAX_SENT // 1024,
            )
        )


def check_cluster(where: str, clusters: Collection[str]) -> None:
    """Raise UserError where the settings do not name the cluster that a job is for."""
    if where and where not in clusters:
        if not clusters:
            raise UserError(
                phrase(
                    "no cluster is called {where}. To add it: gpudeck cluster add {where} ADDRESS",
                    where=where,
                )
            )
        raise UserError(
            phrase(
                "no cluster is called {where} (there is: {names}). "
                "To add it: gpudeck cluster add {where} ADDRESS",
                where=where,
                names=", ".join(sorted(clusters)),
            )
        )


def bind_kind(spec: Spec, devices: Sequence[Device]) -> Spec:
    """Return the spec for the kind of device there is now, where the job needs one."""
    kinds = [d.kind for d in devices if d.kind != "replay"]
    kind = kinds[0] if kinds and spec.gpus and not spec.where else ""
    return msgspec.structs.replace(spec, kind=kind)


def check_variety(
    waiting: Lanes,
    specs: Sequence[Spec],
    coming: Mapping[int | None, int] = MappingProxyType({}),
) -> Work[int]:
    """Raise UserError where the jobs of a user would differ in too much of what they need.

    Part by part, and what more of the same needs is not counted.

    Args:
        coming: For each user, the combinations of jobs that are being stored.

    Returns:
        The combinations that no waiting job asks for yet.
    """
    by_user: dict[int | None, set[Requirements]] = {}
    for part in parts(specs):
        for spec in part:
            by_user.setdefault(spec.user, set()).add(requirements(spec))
        yield
    every, all_new = waiting.by_requirements(), 0
    for user, needed in by_user.items():
        new = len(needed - every.keys())
        wanted = waiting.count_with(user, needed) + coming.get(user, 0)
        all_new += new
        if new and wanted > MAX_LANES:
            raise UserError(
                phrase(
                    "your waiting jobs may ask for up to {most} different combinations of GPUs, "
                    "memory, type of GPU and group. Give more of them the same, or submit fewer",
                    most=MAX_LANES,
                )
            )
        if new and wanted > OWN_LANES and len(every) + sum(coming.values()) + new > MAX_ALL_LANES:
            raise UserError(
                phrase(
                    "the waiting jobs of all users ask for too many different combinations of "
                    "GPUs, memory, type of GPU and group, of which yours may have {most} now. "
                    "Give more of them the same, or submit fewer",
                    most=OWN_LANES,
                )
            )
    return all_new
