"""The user's settings, in one validated file that the daemon writes."""

from __future__ import annotations

import re
import shlex
import time
from typing import Annotated, Literal

import msgspec

from gpudeck.language.numbers import GIB
from gpudeck.language.text import joined, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.setting_problems import problem_of
from gpudeck.scheduler.protocol.user_limits import UserLimits

SOURCES = "^(auto|cpu|nvml|replay:.+)$"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"

Threshold = Annotated[float, msgspec.Meta(ge=0)] | Literal["off"]
"""The value from which on an alert is raised; "off": never."""


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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hold the settings; each has a default that suits most people."""

    source: Annotated[str, msgspec.Meta(pattern=SOURCES)] = "auto"
    """The devices: auto, cpu, nvml, or replay:FILE (replay:FILE*8 plays it as eight GPUs)."""
    telemetry_hz: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 2.0
    """Readings a second while a person watches or a job waits or runs; else one in two seconds."""
    laptop_sleep: Literal["auto", "on", "off"] = "auto"
    """Leave GPUs unread while nobody watches and no job needs one, so that they can sleep.
    auto: where the driver would switch them off, as on laptops."""
    idle_util_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 5.0
    """A GPU busier than this is not idle."""
    idle_dwell_s: Annotated[float, msgspec.Meta(ge=0, le=300)] = (
        15.0  # the history in memory goes back ten minutes
    )
    """How long a GPU must be idle before the assistant uses it; doubled by recent evictions."""
    idle_hours_off: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK}-{_CLOCK})?$")] = ""
    """When the assistant may not use a GPU, in local time, e.g. 22:00-07:00."""
    exclusive_programs: str = ""
    """Programs that make a GPU busy, even if they only draw: names, separated by commas."""
    drained: str = ""
    """GPUs that get no new jobs: indices or UUIDs, separated by commas."""
    fair_share: Annotated[float, msgspec.Meta(gt=0, le=10_000)] | Literal["off"] = 24.0
    """Hours after which the GPU-hours of a user count half, where users share a daemon: among jobs
    of one priority, those of the user with the fewest are next. "off": first come, first served."""
    ignored_programs: str = ""
    """Programs that may share a GPU that a job has to itself: names, separated by commas."""
    on_job_end: str = ""
    """A command that runs after every job, without a shell. GPUDECK_JOB, GPUDECK_STATUS and
    GPUDECK_NAME name the job."""
    notify_minutes: Threshold = 5.0
    """The window notifies about the end of jobs that ran this long; "off": about none."""
    preemptible_groups: str = ""
    """Groups whose jobs are preemptible without saying so, separated by commas."""
    session_idle: Threshold = "off"
    """Minutes without use after which a notebook or a shell ends that names no shorter time."""
    suspend_spare: Annotated[float, msgspec.Meta(ge=0, le=2**20)] = 2.0
    """GiB of the machine's memory that suspended programs leave free."""
    log_limit: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | Literal["off"] = 1.0
    """GiB of output that a log keeps, its beginning and its end; 0 or "off": all."""
    model_folder: str = ""
    """The folder (or .pth file) of an RWKV-7 model; empty or "template": no model, templates write
    all texts."""
    model_device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    assistant_never: str = ""
    """Tools that the assistant must not propose, such as `operate cancel`, separated by commas."""
    model_idle_minutes: Annotated[float, msgspec.Meta(gt=0, le=10)] = 5.0
    """Minutes without a request after which a model leaves the GPU."""
    tune_attention: bool = True
    """Measure the attention shapes that programs used, while a GPU is idle."""
    report_jobs: Threshold = "off"
    """Jobs that ran this many minutes get a report; "off": none does."""
    report_daily: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK})?$")] = ""
    """When the report on a day is written, in local time, e.g. 08:00; empty: never."""
    report_language: Literal["en", "de", "fr", "es"] = "en"
    report_digest: bool = False
    """Post what a daily report begins with to the webhook."""
    language: Literal["desktop", "en", "de", "fr", "es"] = "desktop"
    """The language of the window; read when it is opened."""
    theme: Literal["system", "light", "dark"] = "system"
    scale: Annotated[float, msgspec.Meta(ge=0.75, le=3)] = 1.0
    """The size of everything in the window; read when it is opened."""
    energy_price: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The price of a kWh; 0: no cost is shown."""
    currency: Annotated[str, msgspec.Meta(max_length=8)] = "€"
    """The unit of the price."""
    font_size: Annotated[float, msgspec.Meta(ge=8, le=18)] = 10.0
    """Points of the window's usual text; read when it is opened."""
    alert_temperature: Threshold = 5.0
    """A GPU is too hot this many °C below its slow-down temperature."""
    alert_memory: Threshold = 97.0
    """Memory is nearly full from this percentage on."""
    alert_slowdown: Threshold = 10.0
    """Seconds for which heat, the hardware or a power brake may hold the clocks down."""
    alert_power_cap: Threshold = "off"
    """Seconds for which the power limit may hold the clocks down, as is usual under full load."""
    alert_errors: Threshold = 1.0
    """Hardware errors: uncorrectable memory errors, rows whose remapping failed, Xid events."""
    alert_corrected: Threshold = 100.0
    """Corrected memory errors within an hour."""
    alert_idle_job: Threshold = 15.0
    """Minutes for which a job may hold a GPU that does nothing."""
    alert_idle_memory: Threshold = 120.0
    """Minutes for which a program outside of the queue may hold memory of a GPU that does
    nothing."""
    alert_stuck_job: Threshold = 30.0
    """Minutes for which a job that reports progress may make none."""
    alert_host: Threshold = 2.0
    """Minutes for which a machine that is watched over ssh may be unreachable."""
    quiet_hours: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK}-{_CLOCK})?$")] = ""
    """When alerts are not sent, in local time, e.g. 22:00-07:00. They are raised and logged, and
    sent afterwards if they persist."""
    alert_notify: bool = True
    """Show alerts as notifications of the desktop."""
    webhook: Annotated[str, msgspec.Meta(pattern="^(https?://[^/\\s]+\\S*)?$")] = ""
    """The URL that gets alerts as JSON, by POST. It may hold a secret."""
    clean_folders: str = ""
    """Folders to search for core dumps and duplicate models, separated by commas."""
    clean_caches: Threshold = 30.0
    """Days without use after which a compiled kernel can be cleaned up; "off": never."""
    clean_logs: Threshold = 30.0
    """Days after which the log of an ended job can be cleaned up."""
    clean_artefacts: Threshold = 90.0
    """Days after which the artefacts of an ended job can be cleaned up."""
    clean_cores: Threshold = 3.0
    """Days after which a core dump can be cleaned up."""
    clean_duplicates: Threshold = 7.0
    """Days after which a second copy of a model can be cleaned up."""
    clean_memory: Threshold = 1.0
    """Days after which shared memory that no process uses can be cleaned up."""
    clusters: dict[Annotated[str, msgspec.Meta(pattern=CLUSTER)], ClusterSettings] = {}
    """Clusters that jobs can be submitted to, by kind and name, such as ray:lab."""
    hosts: Annotated[
        dict[Annotated[str, msgspec.Meta(pattern=HOST)], HostSettings],
        msgspec.Meta(max_length=64),
    ] = {}
    """Other machines whose devices are shown, by name; reached over ssh."""

    limits: Annotated[dict[str, UserLimits], msgspec.Meta(max_length=10_000)] = {}
    """What users of a shared daemon may use, by name (see `gpudeck limits`)."""

    reservations: Annotated[dict[str, Booking], msgspec.Meta(max_length=1000)] = {}
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
