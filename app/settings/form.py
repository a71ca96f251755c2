"""List the settings with titles, help and editors, and convert their values from and to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scheduler.protocol.errors import UserError
from scheduler.protocol.settings import Settings, changed
from scheduler.verbs.control import Configure


@dataclass(frozen=True)
class Setting:
    """Describe one setting in the form."""

    name: str
    title: str
    help: str
    kind: Literal["choice", "open choice", "switch", "number", "threshold", "text", "folder"]
    """A threshold is a number or "off"; a switch is "on" or "off"."""
    choices: tuple[str, ...] = ()
    unit: str = ""
    group: str = ""


SETTINGS = (
    Setting(
        "source",
        "Source",
        "The devices to watch. auto: NVIDIA GPUs if there are any, else the CPU. replay:FILE plays "
        "a recording, labelled REPLAY; replay:FILE*8 plays it as eight GPUs.",
        "open choice",
        ("auto", "nvml", "cpu"),
        group="Devices",
    ),
    Setting(
        "telemetry_hz",
        "Telemetry rate",
        "Readings per second while a window is open or a job waits or runs. A higher rate shows "
        "shorter peaks and uses more CPU time.",
        "number",
        unit="readings a second",
        group="Devices",
    ),
    Setting(
        "laptop_sleep",
        "Allow GPU sleep",
        "Stop reading the GPUs while no window is open and no job for a GPU waits or runs. auto: "
        "only if the driver switches unused GPUs off, as on laptops.",
        "choice",
        ("auto", "on", "off"),
        group="Devices",
    ),
    Setting(
        "drained",
        "Drained GPUs",
        "GPUs on which no new jobs start, by index or UUID, separated by commas. Jobs that already "
        "run there continue.",
        "open choice",
        group="Jobs",
    ),
    Setting(
        "fair_share",
        "Fair share",
        "Where users share a daemon, jobs of one priority start in the order of the GPU-hours that "
        "their users have had, the fewest first; hours count half after this time. off: first "
        "come, first served.",
        "threshold",
        unit="hours",
        group="Jobs",
    ),
    Setting(
        "ignored_programs",
        "Ignored programs",
        "A job that needs a whole GPU waits until no other process uses it. Programs named here, "
        "separated by commas, do not count.",
        "open choice",
        group="Jobs",
    ),
    Setting(
        "notify_minutes",
        "Notify when jobs end",
        "Show a desktop notification when a job ends that ran for at least this long, while the "
        "window is open. off: never.",
        "threshold",
        unit="min or longer",
        group="Jobs",
    ),
    Setting(
        "log_limit",
        "Max log size",
        "If a job prints more, only the first and the newest output is kept, and a line in the log "
        "says how much was dropped. Applies to jobs that start later. off: keep everything.",
        "threshold",
        unit="GiB a job",
        group="Jobs",
    ),
    Setting(
        "on_job_end",
        "Run after each job",
        "A program with arguments that the daemon runs after every job, without a shell and for at "
        "most a minute. GPUDECK_JOB, GPUDECK_STATUS and GPUDECK_NAME describe the job. Empty: "
        "none.",
        "text",
        group="Jobs",
    ),
    Setting(
        "idle_util_percent",
        "Idle below",
        "A device with a higher utilisation is not idle.",
        "number",
        unit="% utilisation",
        group="Idle",
    ),
    Setting(
        "idle_dwell_s",
        "Idle after",
        "How long a device must be quiet before the assistant may use it; twice as long after each "
        "eviction in the last ten minutes. A job that needs the GPU takes it back at once: the "
        "assistant is notified, and killed 0.1 s later.",
        "number",
        unit="s without load",
        group="Idle",
    ),
    Setting(
        "idle_hours_off",
        "Assistant quiet hours",
        "When the assistant must not use a GPU, such as 09:00-18:00 or 22:00-07:00. It may still "
        "write on the CPU. Empty: never.",
        "text",
        group="Idle",
    ),
    Setting(
        "exclusive_programs",
        "Exclusive programs",
        "A GPU is busy while one of these programs runs on it: names such as blender, separated by "
        "commas. Name programs that only draw; programs that compute always count. Jobs do not "
        "wait for these programs.",
        "text",
        group="Idle",
    ),
    Setting(
        "model_folder",
        "Model folder",
        "A folder with the .safetensors files, or a .pth file, of an RWKV-7 model. Empty: the "
        "small model that comes with GPU Deck. template: no model; all texts are written from "
        "templates.",
        "folder",
        group="Assistant",
    ),
    Setting(
        "model_device",
        "Model device",
        "Where the model runs. On cuda it leaves the GPU as soon as a job needs it.",
        "choice",
        ("cpu", "cuda"),
        group="Assistant",
    ),
    Setting(
        "assistant_never",
        "Blocked actions",
        "Actions that the assistant must not propose, such as operate cancel, operate submit, "
        "separated by commas. Block for good, below a proposal, adds to it. The assistant "
        "does nothing that you have not allowed.",
        "text",
        group="Assistant",
    ),
    Setting(
        "model_idle_minutes",
        "Leave the GPU after",
        "The model leaves the GPU after this time without a request; the next request loads it "
        "again.",
        "number",
        unit="min without a request",
        group="Assistant",
    ),
    Setting(
        "tune_attention",
        "Tune attention",
        "While a GPU is idle, measure which backend computes the attention shapes of your programs "
        "fastest. They go by it from then on.",
        "switch",
        group="Assistant",
    ),
    Setting(
        "report_jobs",
        "Report on jobs",
        "Write an HTML report on each job that ran for at least this long, once the devices are "
        "idle. The newest 200 are kept in the reports folder. off: never.",
        "threshold",
        unit="min or longer",
        group="Assistant",
    ),
    Setting(
        "report_daily",
        "Daily report",
        "When to write a report on everything since the last one, such as 08:00. While the devices "
        "are busy, the report waits. Empty: never.",
        "text",
        group="Assistant",
    ),
    Setting(
        "alert_temperature",
        "Too hot",
        "Alert when a card has been this close to its own slow-down temperature for 10 s. Each of "
        "these thresholds is a number, or off.",
        "threshold",
        unit="°C below slow-down, for 10 s",
        group="Alerts",
    ),
    Setting(
        "alert_memory",
        "Memory nearly full",
        "Alert when this share of the memory has been in use for a minute.",
        "threshold",
        unit="% of the memory, for 1 min",
        group="Alerts",
    ),
    Setting(
        "alert_slowdown",
        "Throttled",
        "Alert when heat, the hardware or a power brake has throttled the clocks for this long.",
        "threshold",
        unit="s of throttling",
        group="Alerts",
    ),
    Setting(
        "alert_power_cap",
        "Power limit reached",
        "Alert when the power limit has throttled the clocks for this long. off by default, since "
        "large matrix products often reach the limit.",
        "threshold",
        unit="s at the limit",
        group="Alerts",
    ),
    Setting(
        "alert_errors",
        "Hardware errors",
        "Alert at this number of uncorrected memory errors, failed remappings of a memory row and "
        "Xid errors of the driver, and wherever the driver asks for a reset, a restart or a drain.",
        "threshold",
        unit="errors",
        group="Alerts",
    ),
    Setting(
        "alert_corrected",
        "Memory errors",
        "Alert at this number of corrected memory errors within an hour.",
        "threshold",
        unit="errors within an hour",
        group="Alerts",
    ),
    Setting(
        "alert_idle_job",
        "GPU reserved but idle",
        "Alert when a job holds a GPU that has been idle for this long.",
        "threshold",
        unit="min without load",
        group="Alerts",
    ),
    Setting(
        "alert_stuck_job",
        "No progress",
        "Alert when a job that reports its progress has made none for this long.",
        "threshold",
        unit="min without progress",
        group="Alerts",
    ),
    Setting(
        "alert_host",
        "Machine unreachable",
        "Alert when a machine that is watched over ssh has been unreachable for this long.",
        "threshold",
        unit="min",
        group="Alerts",
    ),
    Setting(
        "alert_notify",
        "Notifications",
        "Show alerts as desktop notifications while the window is open.",
        "switch",
        group="Alerts",
    ),
    Setting(
        "quiet_hours",
        "Quiet hours",
        "When alerts are only listed, such as 22:00-07:00. You are notified afterwards of alerts "
        "that are still active. Empty: never.",
        "text",
        group="Alerts",
    ),
    Setting(
        "webhook",
        "Webhook",
        "An http or https address that receives each alert as JSON by POST, even while no window "
        "is open. Chat services show its text. Empty: none.",
        "text",
        group="Alerts",
    ),
    Setting(
        "clean_folders",
        "Folders",
        "Folders to search for core dumps and duplicate models, separated by commas. The caches of "
        "Triton, PyTorch and CUDA, the files of jobs and shared memory are always searched. "
        "Nothing else is ever touched.",
        "text",
        group="Clean-up",
    ),
    Setting(
        "clean_caches",
        "Unused kernels",
        "Propose compiled kernels that have not been used for this long. They are compiled again "
        "when they are needed. Each of these ages is a number, or off.",
        "threshold",
        unit="days without use",
        group="Clean-up",
    ),
    Setting(
        "clean_logs",
        "Logs of jobs",
        "Propose logs that have not been read or written for this long.",
        "threshold",
        unit="days without use",
        group="Clean-up",
    ),
    Setting(
        "clean_artefacts",
        "Artefacts of jobs",
        "Propose files of jobs that have not been read or written for this long.",
        "threshold",
        unit="days without use",
        group="Clean-up",
    ),
    Setting(
        "clean_cores",
        "Core dumps",
        "Propose core dumps that are older than this, in the folders above and where jobs ran.",
        "threshold",
        unit="days old",
        group="Clean-up",
    ),
    Setting(
        "clean_duplicates",
        "Duplicate models",
        "Propose second copies of large model files that have not been used for this long. The "
        "first copy and the targets of links are kept.",
        "threshold",
        unit="days without use",
        group="Clean-up",
    ),
    Setting(
        "clean_memory",
        "Shared memory",
        "Propose segments in /dev/shm that no process has had open for this long.",
        "threshold",
        unit="days without use",
        group="Clean-up",
    ),
    Setting(
        "energy_price",
        "Price of a kWh",
        "The Dashboard multiplies the energy of the last 24 hours by this price. 0: no cost is "
        "shown.",
        "number",
        group="Energy",
    ),
    Setting("currency", "Currency", "The unit of the price.", "text", group="Energy"),
    Setting(
        "theme",
        "Theme",
        "system: follow the desktop's light or dark style.",
        "choice",
        ("system", "light", "dark"),
        group="Appearance",
    ),
    Setting(
        "scale",
        "UI scale",
        "The size of text and everything else, 0.75 to 3. Applies when the window is opened again.",
        "number",
        group="Appearance",
    ),
    Setting(
        "font_size",
        "Font size",
        "The size of text, 8 to 18. Applies when the window is opened again.",
        "number",
        unit="pt",
        group="Appearance",
    ),
)


def text_of(settings: Settings, setting: Setting) -> str:
    """Return the setting's value as text."""
    value = getattr(settings, setting.name)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def change(settings: Settings, setting: Setting, text: str) -> Configure | None:
    """Return the request that sets the value in `text`; None if the value is the current one.

    Raises:
        UserError: The text is not valid.
    """
    value: str | float = text.strip()
    if setting.kind == "switch":
        value = value == "on"
    elif setting.kind == "number" or (setting.kind == "threshold" and value != "off"):
        try:
            value = float(text)
        except ValueError as e:
            or_off = ", or off" if setting.kind == "threshold" else ""
            raise UserError(f"{setting.title} must be a number{or_off}; got {text!r}") from e
    if changed(settings, {setting.name: value}) == settings:
        return None
    return Configure({setting.name: value})
