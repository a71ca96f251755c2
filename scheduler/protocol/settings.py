"""The user's settings, in one validated file that the daemon writes."""

from __future__ import annotations

import re
import shlex
import time
from typing import Annotated

import msgspec

from gpudeck.language.numbers import GIB
from gpudeck.language.text import joined, mark_phrase, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.setting_problems import Example, problem_of
from gpudeck.scheduler.protocol.setting_table import SOURCES, PersonalSettings
from gpudeck.scheduler.protocol.user_limits import UserLimits

TEMPLATE = "template"
"""The value of `model_folder` that stands for no model."""
CLUSTER = "^(ray|slurm):[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""The kind of a cluster, and the name that the user gives it."""


ADDRESS = "^(https?://[^/\\s]+\\S*)?$"
"""The address of Ray's dashboard; empty for Slurm."""


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Describe how to reach a cluster."""

    address: Annotated[str, msgspec.Meta(pattern=ADDRESS)] = ""
    """The dashboard of Ray, such as http://head:8265; Slurm is reached by its own commands."""
    token_file: str = ""
    """The file that holds its token; nobody else may read it."""


HOST = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$"
"""The name that the user gives another machine."""
DESTINATION = "^(ssh://)?[A-Za-z0-9_.[][A-Za-z0-9_.@:%+\\[\\]\\\\-]{0,254}$"
"""What ssh connects to: never an option of it, and nothing that a shell would change."""


class HostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Describe how to reach another machine over ssh."""

    address: Annotated[str, msgspec.Meta(pattern=DESTINATION)]
    """What is given to ssh: user@lab1, a name of ~/.ssh/config, or ssh://user@lab1:2222."""
    config: str = ""
    """The configuration file of ssh, in place of the usual one (ssh -F)."""
    home: str = ""
    """The state folder of the GPU Deck there, where it is not the usual one."""


class Settings(PersonalSettings, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hold all settings, with those that have commands of their own."""

    clusters: Annotated[
        dict[Annotated[str, msgspec.Meta(pattern=CLUSTER)], ClusterSettings],
        Example(mark_phrase("ray:lab with the address http://head:8265, or slurm:hpc without one")),
    ] = msgspec.field(default_factory=dict)
    """Clusters that jobs can be submitted to, by kind and name, such as ray:lab."""
    hosts: Annotated[
        dict[Annotated[str, msgspec.Meta(pattern=HOST)], HostSettings],
        msgspec.Meta(max_length=64),
        Example(mark_phrase("lab with the address user@lab1")),
    ] = msgspec.field(default_factory=dict)
    """Other machines whose devices are shown, by name; reached over ssh."""

    limits: Annotated[
        dict[str, UserLimits],
        msgspec.Meta(max_length=10_000),
        Example(mark_phrase("a user's name with gpus, gpu_hours or both, such as 4 and 100")),
    ] = msgspec.field(default_factory=dict)
    """What users of a shared daemon may use, by name (see `gpudeck limits`)."""

    reservations: Annotated[dict[str, Booking], msgspec.Meta(max_length=1000)] = msgspec.field(
        default_factory=dict
    )
    """GPUs that are kept for somebody for a time, by number (see `gpudeck reserve`)."""

    @property
    def reports(self) -> bool:
        """Return True where any report is scheduled."""
        return self.report_jobs != "off" or bool(self.report_daily)

    @property
    def model(self) -> str:
        """Return the path of the assistant's model; empty where templates write."""
        return "" if self.model_folder == TEMPLATE else self.model_folder

    @property
    def log_bytes(self) -> int:
        """Return the limit of a job's log in bytes; 0: none."""
        return 0 if self.log_limit == "off" else round(self.log_limit * GIB)

    @property
    def suspend_spare_bytes(self) -> int:
        """Return the bytes of the machine's memory that suspended programs leave free."""
        return round(self.suspend_spare * GIB)


def is_quiet(hours: str, at: float) -> bool:
    """Return True during quiet hours.

    Args:
        hours: Local time, such as 22:00-07:00, without its last minute; empty: never.
        at: Seconds since the epoch.
    """
    if not hours:
        return False
    local = time.localtime(at)
    now = local.tm_hour * 60 + local.tm_min
    start, end = (int(text[:2]) * 60 + int(text[3:]) for text in hours.split("-"))
    return start <= now < end if start <= end else now >= start or now < end


def load() -> Settings:
    """Return the stored settings, or the defaults. Raises UserError where the file is wrong."""
    file = paths.settings_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Settings)
    except FileNotFoundError:
        return Settings()
    except (*MALFORMED, OSError) as e:
        wrong = problem_of(e, Settings) if isinstance(e, msgspec.ValidationError) else str(e)
        raise UserError(
            phrase(
                "cannot read the settings in {file}: {problem}. "
                "Correct the file, or delete it to start from the defaults.",
                file=str(file),
                problem=wrong,
            )
        ) from e


def changed(settings: Settings, changes: dict[str, object]) -> Settings:
    """Return the settings with the changes. Raises UserError that names a wrong setting."""
    unknown = set(changes) - set(Settings.__struct_fields__)
    if unknown:
        raise UserError(
            phrase(
                "no setting is called {name}. There are: {names}.",
                name=joined(sorted(unknown)),
                names=joined(Settings.__struct_fields__),
            )
        )
    if "source" in changes and not re.match(SOURCES, str(changes["source"])):
        raise UserError(
            phrase(
                "no source of readings is called {value}. There are: {names}.",
                value=repr(changes["source"]),
                names="auto, cpu, nvml, replay:FILE",
            )
        )
    for folder in listed(str(changes.get("clean_folders", ""))):
        if not folder.startswith("/") and folder != "~" and not folder.startswith("~/"):
            raise UserError(
                phrase(
                    "clean_folders names folders by their whole path, such as ~/models; got "
                    "{value}",
                    value=repr(folder),
                )
            )
    try:
        shlex.split(str(changes.get("on_job_end", "")))
    except ValueError as e:
        raise UserError(phrase("on_job_end is not a command: {quote}", quote=str(e))) from e
    try:
        return msgspec.convert({**msgspec.structs.asdict(settings), **changes}, type=Settings)
    except msgspec.ValidationError as e:
        why = problem_of(e, Settings)
        raise UserError(phrase("that setting cannot be used: {problem}", problem=why)) from e


def listed(text: str) -> frozenset[str]:
    """Return the entries of a setting that is a list."""
    return frozenset(entry.strip() for entry in text.split(",") if entry.strip())


def save(settings: Settings) -> None:
    """Store the settings, readable by the owner only. Raises UserError where that fails."""
    file = paths.settings_file()
    paths.ensure(file.parent)
    try:
        paths.replace_file(file, msgspec.json.format(msgspec.json.encode(settings)))
    except OSError as e:
        raise UserError(
            phrase(
                "the settings cannot be stored in {file}: {quote}. They are unchanged.",
                file=str(file),
                quote=str(e.strerror),
            )
        ) from e
