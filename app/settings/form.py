"""The settings as a form: what each is called, what it does, and the change a user's text stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scheduler.protocol.errors import UserError
from scheduler.protocol.settings import Settings, changed
from scheduler.verbs.control import Configure


@dataclass(frozen=True)
class Setting:
    name: str
    title: str
    help: str
    kind: Literal["choice", "open choice", "switch", "number", "threshold", "text", "folder"]
    """A threshold is a number, or "off"; a switch is "on" or "off"."""
    choices: tuple[str, ...] = ()
    unit: str = ""
    group: str = ""


SETTINGS = (
    Setting(
        "source",
        "Source",
        "Which devices to watch. auto takes NVIDIA GPUs where there are any, else the CPU. replay:FILE plays a recording, labelled REPLAY; "
        "replay:FILE*8 plays it as eight GPUs.",
        "open choice",
        ("auto", "nvml", "cpu"),
        group="Devices",
    ),
    Setting(
        "telemetry_hz",
        "Telemetry rate",
        "Readings a second while somebody looks or a job waits or runs. More shows shorter peaks, and costs more of the CPU.",
        "number",
        unit="Hz",
        group="Devices",
    ),
    Setting(
        "laptop_sleep",
        "Let GPUs sleep",
        "Read nothing while nobody looks and no job for a GPU waits or runs. A window, a command or such a job wakes them. "
        "auto: where the driver switches unused GPUs off, as on laptops.",
        "choice",
        ("auto", "on", "off"),
        group="Devices",
    ),
    Setting(
        "drained",
        "Drained GPUs",
        "GPUs that get no new jobs, by index or UUID, separated by commas. What runs there runs on.",
        "open choice",
        group="Jobs",
    ),
    Setting(
        "ignored_programs",
        "Overlooked programs",
        "A job that wants a GPU for itself waits until no process of others is on it. Programs named here, separated by commas, may stay.",
        "open choice",
        group="Jobs",
    ),
    Setting(
        "notify_minutes",
        "Tell the end of jobs",
        "The open window shows a notification of the desktop when a job ends that ran for so long; or off.",
        "threshold",
        unit="min",
        group="Jobs",
    ),
    Setting(
        "log_limit",
        "Largest log",
        "Of a job that prints more, the first and the newest output is kept, and a line in the log tells how much was dropped between. "
        "In force for jobs that start from then on. off: all is kept.",
        "threshold",
        unit="GiB",
        group="Jobs",
    ),
    Setting(
        "on_job_end",
        "Command at the end",
        "Run by the daemon at the end of every job, also without a window: a program and its arguments, no shell. "
        "GPUDECK_JOB, GPUDECK_STATUS and GPUDECK_NAME tell it which; it has a minute. Empty: none.",
        "text",
        group="Jobs",
    ),
    Setting(
        "idle_util_percent",
        "Idle below",
        "A device busier than this is not idle.",
        "number",
        unit="%",
        group="Idle",
    ),
    Setting(
        "idle_dwell_s",
        "Idle after",
        "How long a device must stay quiet before the assistant may use it, twice as long after each time it had to leave in the last ten "
        "minutes. A job that needs the GPU takes it back at once: the assistant is told, and killed 0.1 s later.",
        "number",
        unit="s",
        group="Idle",
    ),
    Setting(
        "idle_hours_off",
        "Hours off",
        "When the assistant uses no GPU, such as 09:00-18:00, or 22:00-07:00 over midnight. It leaves when they begin; on the CPU it may "
        "still write. Empty: none.",
        "text",
        group="Idle",
    ),
    Setting(
        "exclusive_programs",
        "Exclusive programs",
        "While one of these runs on a GPU, that GPU is busy: names such as blender, separated by commas. Others that compute make it busy "
        "anyway; name here those that only draw. Jobs do not wait for them.",
        "text",
        group="Idle",
    ),
    Setting(
        "model_folder",
        "Model folder",
        "A folder of .safetensors (or a .pth file) of an RWKV-7 model. Empty: the small one that comes with GPU Deck. "
        "template: no model; all texts are written from templates.",
        "folder",
        group="Assistant",
    ),
    Setting(
        "model_device",
        "Model device",
        "Where the model runs. On cuda it leaves the GPU as soon as a job wants it.",
        "choice",
        ("cpu", "cuda"),
        group="Assistant",
    ),
    Setting(
        "assistant_never",
        "Never proposed",
        "What the assistant must not even propose, such as operate cancel, operate submit; separated by commas. Never, below a proposal, "
        "adds to it. Nothing that it proposes is done before you allow it.",
        "text",
        group="Assistant",
    ),
    Setting(
        "model_idle_minutes",
        "Leaves the GPU after",
        "After so long without a request nothing of the model stays on the GPU; the next request loads it again.",
        "number",
        unit="min",
        group="Assistant",
    ),
    Setting(
        "report_jobs",
        "Report on jobs",
        "A report on each job that ran for so long is written by itself, once the devices are idle: HTML, in the folder reports among the "
        "state; the newest 200 are kept. off: none.",
        "threshold",
        unit="min",
        group="Assistant",
    ),
    Setting(
        "report_daily",
        "Daily report",
        "When a report on what happened since the last one is written by itself, such as 08:00, or as soon as the devices are idle then. "
        "Empty: never.",
        "text",
        group="Assistant",
    ),
    Setting(
        "alert_temperature",
        "Too hot",
        "From so far below the card's own slow-down temperature on, for 10 s. Each of these is a number, or off.",
        "threshold",
        unit="°C",
        group="Alerts",
    ),
    Setting(
        "alert_memory",
        "Memory nearly full",
        "From this share of the memory on, for a minute.",
        "threshold",
        unit="%",
        group="Alerts",
    ),
    Setting(
        "alert_slowdown",
        "Slowed down",
        "Heat, the hardware or a power brake has held the clocks down for so long.",
        "threshold",
        unit="s",
        group="Alerts",
    ),
    Setting(
        "alert_power_cap",
        "At its power limit",
        "The power limit has held the clocks down for so long. Off, as large matrix products usually meet it.",
        "threshold",
        unit="s",
        group="Alerts",
    ),
    Setting(
        "alert_errors",
        "Hardware errors",
        "So many memory errors that could not be put right, failed remappings of a memory row, and Xid errors of the driver.",
        "threshold",
        group="Alerts",
    ),
    Setting(
        "alert_corrected",
        "Memory errors",
        "So many that were put right, within an hour.",
        "threshold",
        group="Alerts",
    ),
    Setting(
        "alert_idle_job",
        "Held and idle",
        "A job holds a GPU that has done nothing for so long.",
        "threshold",
        unit="min",
        group="Alerts",
    ),
    Setting(
        "alert_stuck_job",
        "No progress",
        "A job that tells its progress has made none for so long.",
        "threshold",
        unit="min",
        group="Alerts",
    ),
    Setting(
        "alert_notify",
        "Notifications",
        "Show alerts as notifications of the desktop while the window is open.",
        "switch",
        group="Alerts",
    ),
    Setting(
        "quiet_hours",
        "Quiet hours",
        "When nobody is told of alerts, such as 22:00-07:00. They are in the list all the same; what lasts is told after. Empty: never.",
        "text",
        group="Alerts",
    ),
    Setting(
        "webhook",
        "Webhook",
        "An http or https address that gets each alert as JSON, by POST, also without a window; chat services show its text. Empty: none.",
        "text",
        group="Alerts",
    ),
    Setting(
        "clean_folders",
        "Folders",
        "Looked through for core dumps and for models that are there twice, separated by commas. The caches of Triton, PyTorch and CUDA, "
        "the files of jobs and shared memory are looked at anyway. Nothing anywhere else is ever touched.",
        "text",
        group="Clean-up",
    ),
    Setting(
        "clean_caches",
        "Unused kernels",
        "Proposed after so long without use. They are compiled again where they are needed. Each of these is a number, or off.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "clean_logs",
        "Logs of jobs",
        "Proposed so long after they were last read or written.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "clean_artefacts",
        "Artefacts of jobs",
        "What jobs left: as logs.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "clean_cores",
        "Core dumps",
        "Also in the folders where jobs ran.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "clean_duplicates",
        "Duplicate models",
        "Second copies of large model files. The first, and what links point to, stay.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "clean_memory",
        "Shared memory",
        "Segments in /dev/shm that no process has open.",
        "threshold",
        unit="days",
        group="Clean-up",
    ),
    Setting(
        "theme",
        "Theme",
        "system follows the desktop's light or dark.",
        "choice",
        ("system", "light", "dark"),
        group="Appearance",
    ),
    Setting(
        "scale",
        "Size",
        "How large text and everything else is, from 0.75 to 3. In force when the window is opened the next time.",
        "number",
        group="Appearance",
    ),
)


def text_of(settings: Settings, setting: Setting) -> str:
    """The setting's value as the form shows it."""
    value = getattr(settings, setting.name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def change(settings: Settings, setting: Setting, text: str) -> Configure | None:
    """The request that makes `text` the setting's value; None where it is that already. Raises UserError saying what is wrong."""
    value: str | float = text.strip()
    if setting.kind == "switch":
        value = value == "on"
    elif setting.kind == "number" or (setting.kind == "threshold" and value != "off"):
        try:
            value = float(text)
        except ValueError as e:
            or_off = ", or off" if setting.kind == "threshold" else ""
            raise UserError(f"{setting.title} is a number{or_off}; got {text!r}") from e
    if changed(settings, {setting.name: value}) == settings:
        return None
    return Configure({setting.name: value})
