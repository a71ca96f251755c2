"""State each setting of a person once: its type, default and limits, and what people read about it.

The page Settings, `gpudeck settings`, the assistant and docs/settings.md take all of it from here.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, get_type_hints

import msgspec

from gpudeck.language.languages import Language
from gpudeck.scheduler.protocol.setting_problems import Example

SOURCES = "^(auto|cpu|nvml|replay:.+)$"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]"
_HOURS = f"^({_CLOCK}-{_CLOCK})?$"

Threshold = Annotated[float, msgspec.Meta(ge=0)] | Literal["off"]
"""A value from which on something happens; "off": never."""


class About(NamedTuple):
    """Hold what people read about a setting, in English; it is translated where it is shown."""

    group: str
    title: str
    help: str
    unit: str = ""
    """Of the value, as the assistant reads and says it."""
    measure: str = ""
    """What the value is a number of, as people read it beside the field; the unit if empty."""
    editor: Literal["", "list", "source", "folder"] = ""
    """How a text is entered, if not as a text."""
    choices: tuple[str, ...] = ()
    """What a person may choose beside other texts."""


class PersonalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hold the settings of the page Settings, in its order; each default suits most people."""

    source: Annotated[
        str,
        msgspec.Meta(pattern=SOURCES),
        About(
            "Devices",
            "Source",
            "The devices to watch. auto: NVIDIA GPUs if there are any, else the CPU. "
            "replay:FILE plays a recording, labelled REPLAY; replay:FILE*8 plays it as "
            "eight GPUs.",
            editor="source",
            choices=("auto", "nvml", "cpu"),
        ),
    ] = "auto"
    telemetry_hz: Annotated[
        float,
        msgspec.Meta(ge=0.1, le=10),
        About(
            "Devices",
            "Telemetry rate",
            "Readings per second while a window is open or a job waits or runs. A higher "
            "rate shows shorter peaks and uses more CPU time.",
            unit="Hz",
            measure="readings a second",
        ),
    ] = 2.0
    laptop_sleep: Annotated[
        Literal["auto", "on", "off"],
        About(
            "Devices",
            "Allow GPU sleep",
            "Stop reading the GPUs while no window is open and no job for a GPU waits or "
            "runs. auto: only if the driver switches unused GPUs off, as on laptops.",
        ),
    ] = "auto"
    calibrate_after: Annotated[
        Threshold,
        About(
            "Devices",
            "Calibrate when idle",
            "Measure the true clock of GPUs with hardware counters once they were idle for this "
            "time. This is done once for each driver, takes about a minute a GPU, and ends when "
            "another job or program needs a GPU. off: never.",
            unit="min",
            measure="min of rest",
        ),
    ] = 30.0
    drained: Annotated[
        str,
        About(
            "Jobs",
            "Drained GPUs",
            "GPUs on which no new jobs start. Name them by index or UUID, separated by "
            "commas. Jobs that already run there continue.",
            editor="list",
        ),
    ] = ""
    fair_share: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=10_000)] | Literal["off"],
        About(
            "Jobs",
            "Fair share",
            "Start jobs of users with fewer GPU-hours first. If users share a daemon, this "
            "orders jobs of the same priority. GPU-hours are halved after this time. off: "
            "first come, first served.",
            unit="h",
            measure="hours",
        ),
    ] = 24.0
    ignored_programs: Annotated[
        str,
        About(
            "Jobs",
            "Ignored programs",
            "Programs on a GPU for which jobs do not wait. A job that needs a whole GPU "
            "waits until no other process uses it; programs named here, separated by "
            "commas, do not count.",
            editor="list",
        ),
    ] = ""
    notify_minutes: Annotated[
        Threshold,
        About(
            "Jobs",
            "Notify when jobs end",
            "Show a desktop notification when a job that ran at least this long ends. "
            "Notifications appear only while the window is open. off: never.",
            unit="min",
            measure="min or longer",
        ),
    ] = 5.0
    log_limit: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=2**20)] | Literal["off"],
        About(
            "Jobs",
            "Max log size",
            "Keep at most this much of what a job prints. If a job prints more, the log "
            "keeps the first and the newest output, and a line in the log says how much "
            "was dropped. Applies to jobs that start later. off: keep everything.",
            unit="GiB",
            measure="GiB a job",
        ),
    ] = 1.0
    preemptible_groups: Annotated[
        str,
        About(
            "Jobs",
            "Preemptible groups",
            "The jobs of these groups are preemptible. More urgent jobs and bookings "
            "suspend them, as with --preemptible. Separate the names by commas. Applies to "
            "jobs that are submitted later.",
            editor="list",
        ),
    ] = ""
    turns: Annotated[
        Threshold,
        About(
            "Jobs",
            "Take turns",
            "Preemptible jobs of the same priority take turns on a GPU, each for this time. A turn "
            "lasts 10 minutes at least. off: each job stays until it ends.",
            unit="min",
            measure="min a turn",
        ),
    ] = "off"
    session_idle: Annotated[
        Threshold,
        About(
            "Jobs",
            "End unused sessions",
            "End a notebook or a shell that nobody has used for this time. Sessions with a "
            "shorter time of their own (--idle) keep it. off: only these end.",
            unit="min",
            measure="min without use",
        ),
    ] = "off"
    suspend_spare: Annotated[
        float,
        msgspec.Meta(ge=0, le=2**20),
        About(
            "Jobs",
            "Host memory kept free",
            "A job or program is suspended only if this much host memory stays free for others.",
            unit="GiB",
        ),
    ] = 2.0
    on_job_end: Annotated[
        str,
        About(
            "Jobs",
            "Run after each job",
            "A program that the daemon runs after every job. It may have arguments, and "
            "runs without a shell and for at most a minute. GPUDECK_JOB, GPUDECK_STATUS "
            "and GPUDECK_NAME describe the job. Empty: none.",
        ),
    ] = ""
    idle_util_percent: Annotated[
        float,
        msgspec.Meta(ge=0, le=100),
        About(
            "Idle",
            "Idle below",
            "A device with a higher utilisation is not idle.",
            unit="%",
            measure="% utilisation",
        ),
    ] = 5.0
    idle_dwell_s: Annotated[
        float,
        msgspec.Meta(ge=0, le=300),
        About(
            "Idle",
            "Idle after",
            "How long a device must be idle before the assistant may use it. Each eviction "
            "in the last ten minutes doubles this time. A job that needs the GPU takes it "
            "back at once: the assistant is notified, and killed if it has not left 0.1 s "
            "later.",
            unit="s",
            measure="s without load",
        ),
    ] = 15.0
    idle_hours_off: Annotated[
        str,
        msgspec.Meta(pattern=_HOURS),
        Example("22:00-07:00"),
        About(
            "Idle",
            "Assistant quiet hours",
            "When the assistant must not use a GPU, such as 09:00-18:00. It may still "
            "write on the CPU. Empty: never.",
        ),
    ] = ""
    exclusive_programs: Annotated[
        str,
        About(
            "Idle",
            "Exclusive programs",
            "A GPU is busy while one of these programs runs on it. Give names such as "
            "blender, separated by commas, of programs that only draw; programs that "
            "compute always count. Jobs do not wait for these programs.",
        ),
    ] = ""
    model_folder: Annotated[
        str,
        About(
            "Assistant",
            "Model folder",
            "A folder with the files of an RWKV-7 model, or a .pth file. Its weights are "
            ".safetensors files. Empty or template: no model; all texts are written from "
            "templates.",
            editor="folder",
        ),
    ] = ""
    model_device: Annotated[
        Literal["cpu", "cuda"],
        About(
            "Assistant",
            "Model device",
            "Where the model runs. On cuda it leaves the GPU as soon as a job needs it.",
        ),
    ] = "cpu"
    assistant_never: Annotated[
        str,
        About(
            "Assistant",
            "Blocked actions",
            "Actions that the assistant must not propose. They are separated by commas, "
            "such as operate cancel, operate submit. Block for good, below a proposal, "
            "adds to them. The assistant does nothing that you have not allowed.",
        ),
    ] = ""
    model_idle_minutes: Annotated[
        float,
        msgspec.Meta(gt=0, le=10),
        About(
            "Assistant",
            "Leave the GPU after",
            "The model leaves the GPU after this time without a request. The next request "
            "loads it again.",
            unit="min",
            measure="min without a request",
        ),
    ] = 5.0
    tune_attention: Annotated[
        bool,
        About(
            "Assistant",
            "Tune attention",
            "Measure the attention and matrix products of your programs while a GPU is "
            "idle. From then on, your programs use the backends that were fastest.",
        ),
    ] = True
    report_jobs: Annotated[
        Threshold,
        About(
            "Assistant",
            "Report on jobs",
            "Write an HTML report on each job that ran this long. A language model on a GPU "
            "writes it once that GPU is idle, and the templates at once. The newest 200 are "
            "kept in the reports folder. off: never.",
            unit="min",
            measure="min or longer",
        ),
    ] = "off"
    report_daily: Annotated[
        str,
        msgspec.Meta(pattern=f"^({_CLOCK})?$"),
        Example("08:00"),
        About(
            "Assistant",
            "Daily report",
            "When to write a report of the day, such as 08:00, or of the night, such as 03:00. It "
            "covers everything since the last one, and goes to the reports folder. A language "
            "model on a GPU writes it once that GPU is idle. Empty: never.",
        ),
    ] = ""
    report_language: Annotated[
        Language,
        About(
            "Assistant",
            "Language of reports",
            "The language of reports, unless a request asks for another one: English, "
            "German, French or Spanish.",
        ),
    ] = "en"
    report_digest: Annotated[
        bool,
        About(
            "Assistant",
            "Send the daily report",
            "Also send the first paragraph of the daily report to the webhook of alerts.",
        ),
    ] = False
    alert_temperature: Annotated[
        Threshold,
        About(
            "Alerts",
            "Too hot",
            "Alert when a card is this close to its own slow-down temperature. Each of "
            "these thresholds is a number, or off.",
            unit="°C",
            measure="°C below slow-down, for 10 s",
        ),
    ] = 5.0
    alert_memory: Annotated[
        Threshold,
        About(
            "Alerts",
            "Memory nearly full",
            "Alert when this share of the memory has been in use for a minute.",
            unit="%",
            measure="% of the memory, for 1 min",
        ),
    ] = 97.0
    alert_slowdown: Annotated[
        Threshold,
        About(
            "Alerts",
            "Throttled",
            "Alert when the clocks have been throttled for this long. Causes are heat, the "
            "hardware and a power brake.",
            unit="s",
            measure="s of throttling",
        ),
    ] = 10.0
    alert_power_cap: Annotated[
        Threshold,
        About(
            "Alerts",
            "Power limit reached",
            "Alert when the power limit has throttled the clocks. off by default, since "
            "large matrix products often reach the limit.",
            unit="s",
            measure="s at the limit",
        ),
    ] = "off"
    alert_errors: Annotated[
        Threshold,
        About(
            "Alerts",
            "Hardware errors",
            "Alert at this number of hardware errors. These are uncorrected memory errors, "
            "failed remappings of a memory row, and Xid errors of the driver. If the "
            "driver asks for a reset, a restart or a drain, there is always an alert.",
            measure="errors",
        ),
    ] = 1.0
    alert_corrected: Annotated[
        Threshold,
        About(
            "Alerts",
            "Memory errors",
            "Alert at this number of corrected memory errors within an hour.",
            measure="errors within an hour",
        ),
    ] = 100.0
    alert_idle_job: Annotated[
        Threshold,
        About(
            "Alerts",
            "Job holds an idle GPU",
            "Alert when a job holds a GPU that has been idle for this long.",
            unit="min",
            measure="min without load",
        ),
    ] = 15.0
    alert_idle_memory: Annotated[
        Threshold,
        About(
            "Alerts",
            "Program holds idle memory",
            "Alert when a program that is no job holds memory of a GPU that does nothing. "
            "It can be suspended.",
            unit="min",
            measure="min without load",
        ),
    ] = 120.0
    alert_stuck_job: Annotated[
        Threshold,
        About(
            "Alerts",
            "No progress",
            "Alert when a job that reports progress has made none.",
            unit="min",
            measure="min without progress",
        ),
    ] = 30.0
    alert_host: Annotated[
        Threshold,
        About(
            "Alerts",
            "Machine unreachable",
            "Alert when a machine over ssh has been unreachable for this long.",
            unit="min",
        ),
    ] = 2.0
    alert_notify: Annotated[
        bool,
        About(
            "Alerts",
            "Notifications",
            "Show alerts as desktop notifications while the window is open.",
        ),
    ] = True
    quiet_hours: Annotated[
        str,
        msgspec.Meta(pattern=_HOURS),
        Example("22:00-07:00"),
        About(
            "Alerts",
            "Quiet hours",
            "When alerts are only listed, such as 22:00-07:00. You are notified afterwards "
            "of those that are still active. Empty: never.",
        ),
    ] = ""
    webhook: Annotated[
        str,
        msgspec.Meta(pattern="^(https?://[^/\\s]+\\S*)?$"),
        Example("https://example.org/alerts"),
        About(
            "Alerts",
            "Webhook",
            "An http or https address that receives each alert. It gets JSON by POST, even "
            "while no window is open; chat services show its text. Empty: none.",
        ),
    ] = ""
    clean_folders: Annotated[
        str,
        About(
            "Clean-up",
            "Folders",
            "Folders to search for core dumps and duplicate models. They are separated by "
            "commas. The caches of Triton, PyTorch and CUDA, the files of jobs and shared "
            "memory are always searched. Nothing else is ever touched.",
        ),
    ] = ""
    clean_caches: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Unused kernels",
            "Propose compiled kernels that nothing has used for this long. They are "
            "compiled again when they are needed. Each of these ages is a number, or off.",
            unit="d",
            measure="days without use",
        ),
    ] = 30.0
    clean_logs: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Logs of jobs",
            "Propose logs that have not been read or written for this long.",
            unit="d",
            measure="days without use",
        ),
    ] = 30.0
    clean_artefacts: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Artefacts of jobs",
            "Propose files of jobs that have not been read or written for this long.",
            unit="d",
            measure="days without use",
        ),
    ] = 90.0
    clean_cores: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Core dumps",
            "Propose core dumps that are older than this. The folders above and those of "
            "jobs are searched.",
            unit="d",
            measure="days old",
        ),
    ] = 3.0
    clean_duplicates: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Duplicate models",
            "Propose second copies of large model files. The first copy and the targets of "
            "links are kept.",
            unit="d",
            measure="days without use",
        ),
    ] = 7.0
    clean_memory: Annotated[
        Threshold,
        About(
            "Clean-up",
            "Shared memory",
            "Propose segments in /dev/shm that no process has had open for this long.",
            unit="d",
            measure="days without use",
        ),
    ] = 1.0
    energy_price: Annotated[
        float,
        msgspec.Meta(ge=0),
        About(
            "Energy",
            "Price of a kWh",
            "The Dashboard uses this price to show the cost of the last 24 hours. 0: no "
            "cost is shown.",
        ),
    ] = 0.0
    currency: Annotated[
        str, msgspec.Meta(max_length=8), About("Energy", "Currency", "The unit of the price.")
    ] = "€"
    language: Annotated[
        Literal["desktop", Language],
        About(
            "Appearance",
            "Language",
            "The language of the window. As the desktop: the desktop's language, if it is "
            "English, German, French or Spanish, else English. Applies when the window is "
            "opened again.",
        ),
    ] = "desktop"
    theme: Annotated[
        Literal["system", "light", "dark"],
        About("Appearance", "Theme", "Follow the desktop's light or dark style, or choose one."),
    ] = "system"
    scale: Annotated[
        float,
        msgspec.Meta(ge=0.75, le=3),
        About(
            "Appearance",
            "UI scale",
            "The size of everything, 0.75 to 3. Applies when the window is opened again.",
        ),
    ] = 1.0
    font_size: Annotated[
        float,
        msgspec.Meta(ge=8, le=18),
        About(
            "Appearance",
            "Font size",
            "The size of text, 8 to 18. Applies when the window is opened again.",
            unit="pt",
        ),
    ] = 10.0


def abouts() -> dict[str, About]:
    """Return what people read about each setting, by its name."""
    hints = get_type_hints(PersonalSettings, include_extras=True)
    return {
        name: next(part for part in hint.__metadata__ if isinstance(part, About))
        for name, hint in hints.items()
    }
