"""What the user can set, in one validated file. The daemon writes it; everybody may read it."""

from __future__ import annotations

import re
import shlex
import time
from typing import Annotated, Literal

import msgspec

from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.protocol.units import GIB

SOURCES = "^(auto|cpu|nvml|replay:.+)$"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"

Threshold = Annotated[float, msgspec.Meta(ge=0)] | Literal["off"]
"""From where on something is an alert; "off": never."""


TEMPLATE = "template"
"""As `model_folder`: no model."""
CLUSTER = "^(ray|slurm):[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
"""Its kind, and the name its user gives it."""


class ClusterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a cluster is found."""

    address: Annotated[str, msgspec.Meta(pattern="^(https?://[^/\\s]+\\S*)?$")] = ""
    """Of Ray: its dashboard, such as http://head:8265. Slurm is found through its own commands."""
    token_file: str = ""
    """The file that holds the token for it; nobody else may read it."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """User settings; each has a default that suits most people."""

    source: Annotated[str, msgspec.Meta(pattern=SOURCES)] = "auto"
    """Which devices to watch: auto, cpu, nvml, or replay:FILE (replay:FILE*8 plays it as eight GPUs)."""
    telemetry_hz: Annotated[float, msgspec.Meta(ge=0.1, le=10)] = 2.0
    """Readings a second while somebody looks or a job waits or runs; else at most one in two seconds."""
    laptop_sleep: Literal["auto", "on", "off"] = "auto"
    """Whether GPUs are left alone, so that they can sleep, while nobody looks and no job for a GPU waits or runs. auto: where the
    driver would switch them off, as on laptops."""
    idle_util_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 5.0
    """A GPU busier than this is not idle."""
    idle_dwell_s: Annotated[float, msgspec.Meta(ge=0, le=300)] = (
        15.0  # the history in memory goes back ten minutes
    )
    """How long a GPU must stay quiet before the assistant may use it; doubled by each time it had to leave lately."""
    idle_hours_off: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK}-{_CLOCK})?$")] = ""
    """Quiet hours: when the assistant may not use a GPU, local time, e.g. 22:00-07:00."""
    exclusive_programs: str = ""
    """While one of these runs on a GPU, it is busy, even if it only draws: names of programs, separated by commas."""
    drained: str = ""
    """GPUs that get no new jobs: indices or UUIDs, separated by commas."""
    ignored_programs: str = ""
    """Programs of others that may stay on a GPU that a job has for itself: their names, separated by commas."""
    on_job_end: str = ""
    """A command that the daemon runs at the end of every job, told which by GPUDECK_JOB, GPUDECK_STATUS and GPUDECK_NAME; no shell."""
    notify_minutes: Threshold = 5.0
    """The window notifies of the end of jobs that ran for so long; "off": of none."""
    log_limit: Annotated[float, msgspec.Meta(ge=0, le=2**20)] | Literal["off"] = 1.0
    """GiB of its output that a job's log keeps, the first and the newest of it; 0 or "off": all."""
    model_folder: str = ""
    """Folder (or .pth file) of an RWKV-7 model; empty: the one that comes with the program; "template": none, templates write all texts."""
    model_device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    assistant_never: str = ""
    """What the assistant must not even propose to do: tools such as `operate cancel`, separated by commas."""
    model_idle_minutes: Annotated[float, msgspec.Meta(gt=0, le=10)] = 5.0
    """After so many minutes without a request a model leaves the GPU."""
    report_jobs: Threshold = "off"
    """Minutes that a job must have run for a report on it to be written by itself; "off": none is."""
    report_daily: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK})?$")] = ""
    """When the report on a day is written by itself, local time, e.g. 08:00; empty: never."""
    theme: Literal["system", "light", "dark"] = "system"
    scale: Annotated[float, msgspec.Meta(ge=0.75, le=3)] = 1.0
    """How large everything in the window is; read when it is opened."""
    alert_temperature: Threshold = 5.0
    """A GPU is too hot from so many °C below its slow-down temperature on."""
    alert_memory: Threshold = 97.0
    """Memory is nearly full from this share on, in percent."""
    alert_slowdown: Threshold = 10.0
    """Seconds for which heat, the hardware or a power brake may hold the clocks down."""
    alert_power_cap: Threshold = "off"
    """Seconds for which the power limit may hold the clocks down: what large matrix products usually meet."""
    alert_errors: Threshold = 1.0
    """Hardware errors: memory errors that could not be put right, rows whose remapping failed, Xid events."""
    alert_corrected: Threshold = 100.0
    """Memory errors that were put right, within an hour."""
    alert_idle_job: Threshold = 15.0
    """Minutes for which a job may hold a GPU that does nothing."""
    alert_stuck_job: Threshold = 30.0
    """Minutes for which a job that tells its progress may make none."""
    quiet_hours: Annotated[str, msgspec.Meta(pattern=f"^({_CLOCK}-{_CLOCK})?$")] = ""
    """When nobody is told of alerts, local time, e.g. 22:00-07:00. They are raised and logged all the same, and told after."""
    alert_notify: bool = True
    """Whether the window shows alerts as notifications of the desktop."""
    webhook: Annotated[str, msgspec.Meta(pattern="^(https?://[^/\\s]+\\S*)?$")] = ""
    """Where alerts are sent to as JSON, by POST. May hold a secret."""
    clean_folders: str = ""
    """Folders that are looked through for core dumps and duplicate models, separated by commas."""
    clean_caches: Threshold = 30.0
    """Days for which a compiled kernel was not used, after which it is debris; "off": never."""
    clean_logs: Threshold = 30.0
    """Days after which the log of a job that has ended is."""
    clean_artefacts: Threshold = 90.0
    """Days after which its artefacts are."""
    clean_cores: Threshold = 3.0
    """Days after which a core dump is."""
    clean_duplicates: Threshold = 7.0
    """Days after which a second copy of a model is."""
    clean_memory: Threshold = 1.0
    """Days after which shared memory that nobody has open is."""
    clusters: dict[Annotated[str, msgspec.Meta(pattern=CLUSTER)], ClusterSettings] = {}
    """Clusters that jobs can be submitted to, by kind and name, such as ray:lab."""

    @property
    def reports(self) -> bool:
        """Whether any report is to be written by itself."""
        return self.report_jobs != "off" or bool(self.report_daily)

    @property
    def model(self) -> str:
        """Where the assistant's model is: the one that was chosen, else ours; empty where the template is to write."""
        return (
            "" if self.model_folder == TEMPLATE else self.model_folder or str(paths.shipped_model())
        )

    @property
    def log_bytes(self) -> int:
        """The limit of a job's log; 0: none."""
        return 0 if self.log_limit == "off" else round(self.log_limit * GIB)


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
    """The stored settings, or the defaults where none were stored. Raises UserError on a file that does not parse."""
    file = paths.settings_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Settings)
    except FileNotFoundError:
        return Settings()
    except (*MALFORMED, OSError) as e:
        raise UserError(
            f"cannot read the settings in {file}: {e}. Correct the file, or delete it to start from the defaults."
        ) from e


def changed(settings: Settings, changes: dict[str, object]) -> Settings:
    """`settings` with `changes` made, validated. Raises UserError naming the setting that is wrong."""
    unknown = set(changes) - set(Settings.__struct_fields__)
    if unknown:
        raise UserError(
            f"no setting is called {', '.join(sorted(unknown))}. There are: {', '.join(Settings.__struct_fields__)}."
        )
    if "source" in changes and not re.match(SOURCES, str(changes["source"])):
        raise UserError(
            f"no source of readings is called {changes['source']!r}. There are: auto, cpu, nvml, replay:FILE."
        )
    for folder in listed(str(changes.get("clean_folders", ""))):
        if not folder.startswith("/") and folder != "~" and not folder.startswith("~/"):
            raise UserError(
                f"clean_folders names folders by their whole path, such as ~/models; got {folder!r}"
            )
    try:
        shlex.split(str(changes.get("on_job_end", "")))
    except ValueError as e:
        raise UserError(f"on_job_end is no command: {e}") from e
    try:
        return msgspec.convert({**msgspec.structs.asdict(settings), **changes}, type=Settings)
    except msgspec.ValidationError as e:
        raise UserError(f"that setting cannot be used: {e}") from e


def listed(text: str) -> frozenset[str]:
    """The entries of a setting that is a list."""
    return frozenset(entry.strip() for entry in text.split(",") if entry.strip())


def save(settings: Settings) -> None:
    """Write atomically, readable by the owner only. Raises UserError where that is impossible."""
    file = paths.settings_file()
    paths.ensure(file.parent)
    try:
        paths.replace_file(file, msgspec.json.format(msgspec.json.encode(settings)))
    except OSError as e:
        raise UserError(
            f"the settings cannot be stored in {file}: {e.strerror}. They are as before."
        ) from e
