"""The options of a job: the one table from which command line, clients and the window's form work.

To add an option, add a field to `gpudeck.scheduler.protocol.jobs.Spec`, and a type and a row here.
"""

from __future__ import annotations

import math
import os
import re
import resource
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from gpudeck.language.numbers import span
from gpudeck.language.text import Bytes, Listed, Message, Span, Text, phrase
from gpudeck.scheduler.protocol.containers import container_problem, with_engine
from gpudeck.scheduler.protocol.devices import RATE_OF_TYPES
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Inherited, Spec
from gpudeck.scheduler.protocol.place import Place
from gpudeck.scheduler.protocol.units import (
    LAST_MOMENT,
    MAX_SECONDS,
    parse_begin,
    parse_count,
    parse_integer,
    parse_seconds,
    parse_size,
)

MAX_BATCH = 10_000
"""Jobs in one submission."""
MAX_PRIORITY = 1_000_000
MAX_RETRIES = 1000
SIGNALS = ("TERM", "INT", "USR1", "USR2", "HUP")
"""The signals by which a resumable job can be asked to end."""
_LEAST_CPUS = 0.01
"""The least share of a processor that the kernel keeps a group to."""


Words = Sequence[str | os.PathLike[str]]
"""A command and its arguments, as they are submitted."""


class JobOptions(TypedDict, total=False):
    """The options of `Client.submit`; each may be left out. Their meaning is in JOB_OPTIONS."""

    name: str
    gpus: int
    memory: int | str
    gpu_type: str
    priority: int
    timeout: float | str
    retries: int
    backoff: float | str
    retry_lost: bool
    resumable: str
    preemptible: bool
    when_idle: bool
    begin: float | str
    after: Sequence[int]
    after_any: Sequence[int]
    group: str
    hold: bool
    nice: int
    host_memory: int | str
    cpus: float
    precision: str
    notes: str
    tags: Sequence[str]
    notify: Sequence[str]
    container: str
    mounts: Sequence[str]
    where: str
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    workload: str | None
    """The name of an accelerated workload; set by `gpudeck run`."""
    params: Mapping[str, str] | None
    """The parameters of that workload, as they are shown."""


class JobOption(NamedTuple):
    """Describe one option: how it is written, read, checked and shown."""

    name: str
    """The name of the field of Spec, and of the keyword argument."""
    label: str
    """The caption in the window's form and in the details of a job."""
    help: str
    parse: Callable[[str], Any] | None
    """Reads a text that is not empty. Raises UserError. None: a flag without a value."""
    metavar: str | None = None
    flag: str = ""
    """The flag on the command line, where it is not the name."""
    collect: Callable[[Sequence[str]], Any] | None = None
    """Where the flag may be given several times: reads all of their values."""
    hint: str | None = None
    """The placeholder in the window's form. None: the form leaves the option out."""
    limits: tuple[float, float] | None = None
    """The least and the greatest value."""
    write: Callable[[Any], Message] = str
    """Writes a value in the details of a job."""
    shown: bool = True
    """The details of a job show it where it is not the default."""
    local: bool = False
    """It has no meaning in a cluster."""
    editable: bool = True
    """`gpudeck edit` can change it."""

    def is_shown(self, spec: Spec) -> bool:
        """Return True where the details of this job show the option."""
        return self.shown and bool(getattr(spec, self.name))


def _parse_cpus(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and (found == 0 or found >= _LEAST_CPUS)):
        raise UserError(
            phrase(
                "expected a number of processors, such as 8 or 0.5; got {value}", value=repr(text)
            )
        )
    return found


def _parse_signal(text: str) -> str:
    """Read the name of a signal, such as TERM or SIGUSR1. Raises UserError."""
    name = text.strip().upper().removeprefix("SIG")
    _check_signal(name, text)
    return name


def _check_signal(name: str, text: str) -> None:
    if name not in SIGNALS:
        raise UserError(
            phrase(
                "a job can be asked to end by {signals}; got {text}",
                signals=Listed(SIGNALS, "or"),
                text=repr(text[:40]),
            )
        )


def _parse_precision(text: str) -> str:
    """Read a data type, such as fp8. Raises UserError."""
    if text and text not in RATE_OF_TYPES:
        raise UserError(
            phrase(
                "expected a data type: {types}; got {text}",
                types=Listed(tuple(RATE_OF_TYPES), "or"),
                text=repr(text[:40]),
            )
        )
    return text


def parse_time(text: str) -> float:
    """Read a span of time such as 2h, in seconds; 0 stands for none. Raises UserError."""
    return 0.0 if text == "0" else parse_seconds(text)


def _parse_begin(text: str) -> str:
    """Check a moment, which is read when the job is submitted; empty: none. Raises UserError."""
    if text:
        parse_begin(text, time.time())
    return text


def moment_of(begin: str) -> float:
    """Return a moment in seconds since the epoch, 0 for an empty text. Raises UserError."""
    return parse_begin(begin, time.time()) if begin else 0.0


def _parse_jobs(text: str) -> tuple[int, ...]:
    return tuple(parse_count(part) for part in text.replace(",", " ").split())


def _parse_tags(text: str) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


def _split_tags(tags: Sequence[str]) -> tuple[str, ...]:
    return tuple(tag for tag in tags if tag)


def parse_variables(texts: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE, or NAME for a variable of the caller's environment."""
    pairs = (text.partition("=") for text in texts)
    return {name: value if equals else os.environ.get(name, "") for name, equals, value in pairs}


def _parse_environment(text: str) -> dict[str, str]:
    try:
        return parse_variables(shlex.split(text))
    except ValueError as e:
        raise UserError(
            phrase("enter NAME=VALUE, with quotes as in a terminal: {problem}", problem=str(e))
        ) from e


def _enumerate(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


JOB_OPTIONS = (
    JobOption(
        "where", "Runs on", "run the job in a cluster, e.g. ray:lab (see: gpudeck cluster)",
        str, "CLUSTER", "--on", hint="this machine", shown=False, editable=False,
    ),
    JobOption(
        "env", "Environment",
        "with --on or --container: set an environment variable; can be repeated",
        _parse_environment, "NAME[=VALUE]", collect=parse_variables,
        hint="e.g. WANDB_MODE=offline SEED=1", shown=False,
        editable=False,
    ),
    JobOption(
        "cwd", "Folder", "folder to run in (default: the current one)", str, "DIR",
        hint="where GPU Deck was started", shown=False, editable=False,
    ),
    JobOption(
        "name", "Name", "name shown in lists (default: the command's name)", str, "NAME",
        hint="the command's name", shown=False,
    ),
    JobOption(
        "gpus", "GPUs", "number of devices that only this job may use (default: 0; the CPU counts "
                        "as a device)",
        parse_count, "N", hint="0", shown=False,
    ),
    JobOption(
        "memory", "Memory",
        "memory reservation on each GPU, e.g. 20GiB or 20; other jobs with memory reservations may "
        "share the GPU (default: hold the whole GPU)",
        parse_size, "SIZE", hint="whole GPU", local=True,
        write=lambda size: (
            phrase("{amount} reserved on each device", amount=Bytes(size))
            if size
            else phrase("whole GPU")
        ),
    ),
    JobOption(
        "gpu_type", "Which GPU", "part of the GPU's name, e.g. h100, or one GPU, e.g. 'GPU 5'", str,
        "NAME", hint="e.g. h100, GPU 5", local=True,
    ),
    JobOption(
        "priority", "Priority", "jobs with a higher number start earlier (default: 0)",
        parse_integer, "N", hint="0; higher is earlier", limits=(-MAX_PRIORITY, MAX_PRIORITY),
    ),
    JobOption(
        "group", "Group",
        "group of the job; a group can be paused, and limited to a number of running jobs",
        str, "NAME", hint="can be limited",
    ),
    JobOption(
        "timeout", "Time limit", "end the job after this time, e.g. 2h; it then counts as failed",
        parse_time, "TIME", hint="e.g. 2h", limits=(0, MAX_SECONDS),
        write=lambda seconds: phrase("{span} for each attempt", span=Span(seconds)),
    ),
    JobOption(
        "retries", "Retries", "run the job again up to N times if it fails (default: 0)",
        parse_count, "N", hint="0", limits=(0, MAX_RETRIES), shown=False,
    ),
    JobOption(
        "backoff", "Delay of retries",
        "delay before the second attempt; doubles with each attempt (default: 10s)",
        parse_time, "TIME", limits=(0, MAX_SECONDS), shown=False, editable=False,
    ),
    JobOption(
        "retry_lost", "Retry when lost",
        "with --retries: also run the job again if an attempt is lost, for example after a power "
        "cut; the job then repeats what it had already done",
        None, write=lambda _: phrase("yes"), editable=False,
    ),
    JobOption(
        "preemptible", "Preemptible",
        "suspend the job for a waiting job of a higher priority, or for a booking; it comes back "
        "in its turn",
        None, write=lambda _: phrase("yes"), local=True, editable=False,
    ),
    JobOption(
        "when_idle", "Only while idle",
        "run the job only while its GPUs are idle; when another job, a program or the assistant "
        "needs one of them, the job is ended at once, and starts again with the next idle GPUs",
        None, write=lambda _: phrase("yes"), local=True, editable=False,
    ),
    JobOption(
        "resumable", "Resumable",
        "the signal, e.g. TERM, on which the job saves its state in its artefacts and ends within "
        "30 s: where the driver cannot suspend it, it is asked to end, and is queued again",
        _parse_signal, "SIGNAL", write=lambda name: phrase("by SIG{name}", name=name),
        local=True, editable=False,
    ),
    JobOption(
        "begin", "Not before",
        "do not start the job before this time, e.g. 22:30, '2026-12-01 08:00' or +2h",
        _parse_begin, "TIME", hint="e.g. 22:30 or +2h", limits=(0, LAST_MOMENT),
        write=lambda at: time.strftime("%Y-%m-%d %H:%M", time.localtime(at)),
    ),
    JobOption(
        "after", "After (success)", "start after these jobs have succeeded", _parse_jobs,
        "JOB,...", hint="jobs, e.g. 12, 13", write=_enumerate, editable=False,
    ),
    JobOption(
        "after_any", "After (any outcome)",
        "start after these jobs have ended, whether or not they succeeded",
        _parse_jobs, "JOB,...", hint="jobs, e.g. 12, 13", write=_enumerate, editable=False,
    ),
    JobOption(
        "nice", "CPU priority",
        "lower the CPU priority of the job, from 0 (default) to 19 (lowest)",
        parse_count, "N", hint="0; 19 is lowest", limits=(0, 19),
        write=lambda value: phrase("lowered by {n}", n=value), local=True, editable=False,
    ),
    JobOption(
        "host_memory", "Host memory",
        "end the job when it needs more of the machine's memory than this, e.g. 64GiB",
        parse_size, "SIZE", write=lambda size: phrase("at most {amount}", amount=Bytes(size)),
        local=True, hint="e.g. 64GiB", limits=(0, 2.0**60), editable=False,
    ),
    JobOption(
        "cpus", "CPUs", "limit the job to the time of this many processors, e.g. 8 or 0.5",
        _parse_cpus, "N", hint="e.g. 8 or 0.5", limits=(0, 2**16),
        write=lambda cpus: phrase("at most {amount}", amount=float(cpus)), local=True,
        editable=False,
    ),
    JobOption(
        "precision", "Computes in",
        f"the number format in which the job mostly computes ({', '.join(RATE_OF_TYPES)}), so that "
        "TFLOP/s are told for it: the counters of the hardware cannot tell formats apart",
        _parse_precision, "FORMAT", write=str.upper, local=True,
    ),
    JobOption(
        "container", "Container",
        "run the command in a container of this image, with the job's GPUs and folder, e.g. "
        "pytorch/pytorch or podman:IMAGE (also docker: and apptainer:)",
        str, "IMAGE", hint="e.g. podman:IMAGE", local=True, editable=False,
    ),
    JobOption(
        "mounts", "Folders in the container",
        "with --container: another folder that the container sees, e.g. /data or /data:ro; can be "
        "repeated",
        _parse_tags, "DIR", "--mount", collect=_split_tags, write=_enumerate, local=True,
        editable=False,
    ),
    JobOption(
        "hold", "Held", "do not start the job until you run: gpudeck resume JOB", None, shown=False,
        editable=False,
    ),
    JobOption(
        "tags", "Tags", "tag of the job; can be repeated", _parse_tags, "TAG", "--tag",
        collect=_split_tags, hint="e.g. paper, v2", write=_enumerate,
    ),
    JobOption(
        "notify", "Notify", "tell this destination when the job ends (see: gpudeck notify); can be "
                            "repeated",
        _parse_tags, "NAME", collect=_split_tags, hint="e.g. phone", write=_enumerate,
    ),
    JobOption("notes", "Notes", "text to keep with the job", str, "TEXT", hint=""),
)  # fmt: skip


def check_limits(spec: Spec) -> None:
    """Raise UserError where an option is out of its limits, or has no meaning in a cluster."""
    for option in JOB_OPTIONS:
        name, value = option.name.replace("_", " "), getattr(spec, option.name)
        if option.local and spec.where and value:
            raise UserError(
                phrase(
                    "{name} cannot be chosen for a cluster; leave it out, or run "
                    "the job on this machine",
                    name=name,
                )
            )
        if option.limits is not None and not option.limits[0] <= value <= option.limits[1]:
            write = span if option.parse is parse_time else str
            least, greatest = map(write, option.limits)
            raise UserError(
                phrase(
                    "{name} must be from {least} to {greatest}, not {value}",
                    name=name,
                    least=least,
                    greatest=greatest,
                    value=value,
                )
            )
    if spec.resumable:
        _check_signal(spec.resumable, spec.resumable)
    _parse_precision(spec.precision)
    if spec.container and (problem := container_problem(spec.container, (spec.cwd, *spec.mounts))):
        raise UserError(problem)
    if spec.mounts and not spec.container:
        raise UserError(phrase("a job without a container sees all folders: leave --mount out"))


def make_spec(argv: Words, options: JobOptions, place: Place | None = None) -> Spec:
    """Return the Spec of a command, with this process's folder and environment by default.

    For another machine, a login there determines both. Raises UserError for a command or an option
    that cannot be read.
    """
    argv = _words(argv)
    if unknown := options.keys() - JobOptions.__annotations__.keys():
        raise TypeError(f"a job has no option {', '.join(sorted(unknown))}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name, parse in (
        ("memory", parse_size),
        ("host_memory", parse_size),
        ("timeout", parse_seconds),
        ("backoff", parse_seconds),
    ):
        if name in given:
            given[name] = parse(given[name]) if given[name] else 0
    if isinstance(begin := given.get("begin"), str):
        given["begin"] = moment_of(begin)
    if given.get("resumable"):
        given["resumable"] = _parse_signal(given["resumable"])
    for name in ("after", "after_any", "tags", "notify", "mounts"):
        given[name] = tuple(given.get(name, ()))
    given["params"] = dict(given.get("params", {}))
    given["name"] = given.get("name") or (Path(argv[0]).name if argv else "")
    folder = given.get("cwd", "")
    given["cwd"] = str(Path(place.home, folder)) if place else _folder(folder or ".")
    needs_gpu = any(given.get(name) for name in ("memory", "gpu_type", "when_idle"))
    given["gpus"] = given.get("gpus") or int(needs_gpu)
    login = place.env if place else os.environ
    if container := given.get("container"):
        added = given.get("env", {})
        given["env"], given["container_env"] = {**login, **added}, tuple(added)
        given["container"] = with_engine(container, "" if place else login.get("PATH", ""))
    given["env"] = _environment(given.get("env", {} if given.get("where") else login))
    given["inherited"] = None if given.get("where") or place else _inherited()
    _check_utf8(
        given["cwd"],
        phrase(
            "only UTF-8 can be sent to the daemon, and the folder {folder} is not UTF-8. "
            "Rename it, or choose another one with --cwd.",
            folder=ascii(given["cwd"]),
        ),
    )
    texts = (value for name, value in given.items() if isinstance(value, str) and name != "cwd")
    for text in (*argv, *given["tags"], *given["notify"], *given["mounts"], *texts):
        _check_utf8(
            text,
            phrase(
                "only UTF-8 can be sent to the daemon, and the text {text} is not UTF-8. "
                "Put it in a file that the job reads.",
                text=ascii(text),
            ),
        )
    return Spec(argv=argv, **given)


def _words(argv: object) -> tuple[str, ...]:
    """Return the words of a command, paths as texts. Raises UserError."""
    if not isinstance(argv, Sequence) or isinstance(argv, str | bytes):
        raise UserError(
            phrase(
                "a command is a list of words, such as ['python', 'train.py'], which "
                "shlex.split makes of a line; got {argv}",
                argv=repr(argv),
            )
        )
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in argv]
    for word in words:
        if not isinstance(word, str):
            raise UserError(
                phrase("a word of a command must be a text or a path; got {word}", word=repr(word))
            )
    return tuple(words)


def _folder(name: str | os.PathLike[str]) -> str:
    """Return the whole path of a folder. Raises UserError."""
    try:
        return os.path.abspath(name)
    except FileNotFoundError as e:
        raise UserError(
            phrase(
                "the current folder no longer exists. Change to another one, "
                "or choose one with --cwd"
            )
        ) from e


def _check_utf8(text: str, refusal: Text) -> None:
    """Raise UserError with `refusal` where a text has bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise UserError(refusal) from e


def _inherited() -> Inherited:
    """Return what this process passes on to the commands that it starts."""
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    limits = {
        name.removeprefix("RLIMIT_").lower(): resource.getrlimit(number)
        for name, number in vars(resource).items()
        if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"  # which is RLIMIT_NOFILE
    }
    none = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    return Inherited(
        mask,
        os.getpriority(os.PRIO_PROCESS, 0),
        {name: limit for name, limit in limits.items() if limit != none},
    )


def parse_indices(text: str) -> list[int]:
    """Read the indices of an array: 0-9, 0-100:10, 1,4,7 or a mixture. Raises UserError."""
    found: list[int] = []
    for part in text.split(","):
        if not (
            match := re.fullmatch(
                r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?", part.strip()
            )
        ):
            raise UserError(
                phrase(
                    "indices such as 0-9, 0-100:10 or 1,4,7 are needed; got {value}",
                    value=repr(text),
                )
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UserError(
                phrase(
                    "indices go upwards, as in {example}; got {value}",
                    example=f"{last}-{first}",
                    value=repr(part.strip()),
                )
            )
        found += check_indices(range(first, last + 1, int(match[3] or 1)))
    return check_indices(found)


def check_indices(indices: Iterable[int]) -> list[int]:
    """Return the indices of an array, or the positions in a list of jobs, as a list.

    Raises UserError where there are none, too many, or one of them twice.
    """
    found = list(islice(indices, MAX_BATCH + 1))
    if not 0 < len(found) <= MAX_BATCH:
        raise UserError(phrase("1 to {n} jobs can be submitted at once", n=MAX_BATCH))
    if len(set(found)) != len(found):
        raise UserError(phrase("an index is named twice"))
    return found


def environment_of(place: Place | None = None) -> dict[str, str]:
    """Return the environment that jobs of this process, or of a login elsewhere, get.

    Raises UserError where it cannot be sent.
    """
    return _environment(place.env if place else os.environ)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    sent = dict(env)
    for name, value in env.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError as e:
            if name in ("PWD", "OLDPWD"):  # of the shell, which sets them anew for its commands
                del sent[name]
                continue
            raise UserError(
                phrase(
                    "only UTF-8 can be sent to the daemon, and the environment "
                    "variable {name} is not UTF-8. Unset it and try again.",
                    name=ascii(name),
                )
            ) from e
    return sent
