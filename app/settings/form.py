"""List the settings with titles, help and editors, and convert their values from and to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpudeck.app.language.texts import tr, tr_noop, typed_number
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings, changed
from gpudeck.scheduler.verbs.control import Configure


@dataclass(frozen=True)
class Setting:
    """Describe one setting in the form; its texts are English, and translated where shown."""

    name: str
    title: str
    help: str
    kind: Literal["choice", "open choice", "switch", "number", "threshold", "text", "folder"]
    """A threshold is a number or "off"; a switch is "on" or "off"."""
    choices: tuple[str, ...] = ()
    unit: str = ""
    group: str = ""


GROUPS = (
    tr_noop("Devices"), tr_noop("Jobs"), tr_noop("Idle"), tr_noop("Assistant"), tr_noop("Alerts"),
    tr_noop("Clean-up"), tr_noop("Energy"), tr_noop("Appearance"),
)  # fmt: skip
"""The groups of settings, in the order of the page."""
SETTINGS = (
    Setting(
        "source",
        tr_noop("Source"),
        tr_noop(
            "The devices to watch. auto: NVIDIA GPUs if there are any, else the CPU. replay:FILE "
            "plays a recording, labelled REPLAY; replay:FILE*8 plays it as eight GPUs."
        ),
        "open choice",
        ("auto", "nvml", "cpu"),
        group="Devices",
    ),
    Setting(
        "telemetry_hz",
        tr_noop("Telemetry rate"),
        tr_noop(
            "Readings per second while a window is open or a job waits or runs. A higher rate "
            "shows shorter peaks and uses more CPU time."
        ),
        "number",
        unit=tr_noop("readings a second"),
        group="Devices",
    ),
    Setting(
        "laptop_sleep",
        tr_noop("Allow GPU sleep"),
        tr_noop(
            "Stop reading the GPUs while no window is open and no job for a GPU waits or runs. "
            "auto: only if the driver switches unused GPUs off, as on laptops."
        ),
        "choice",
        ("auto", "on", "off"),
        group="Devices",
    ),
    Setting(
        "drained",
        tr_noop("Drained GPUs"),
        tr_noop(
            "GPUs on which no new jobs start. Name them by index or UUID, separated by commas. "
            "Jobs that already run there continue."
        ),
        "open choice",
        group="Jobs",
    ),
    Setting(
        "fair_share",
        tr_noop("Fair share"),
        tr_noop(
            "Start jobs of users with fewer GPU-hours first. If users share a daemon, this orders "
            "jobs of the same priority. GPU-hours are halved after this time. off: first come, "
            "first served."
        ),
        "threshold",
        unit=tr_noop("hours"),
        group="Jobs",
    ),
    Setting(
        "ignored_programs",
        tr_noop("Ignored programs"),
        tr_noop(
            "Programs on a GPU for which jobs do not wait. A job that needs a whole GPU waits "
            "until no other process uses it; programs named here, separated by commas, do not "
            "count."
        ),
        "open choice",
        group="Jobs",
    ),
    Setting(
        "notify_minutes",
        tr_noop("Notify when jobs end"),
        tr_noop(
            "Show a desktop notification when a job that ran at least this long ends. "
            "Notifications appear only while the window is open. off: never."
        ),
        "threshold",
        unit=tr_noop("min or longer"),
        group="Jobs",
    ),
    Setting(
        "log_limit",
        tr_noop("Max log size"),
        tr_noop(
            "Keep at most this much of what a job prints. If a job prints more, the log keeps the "
            "first and the newest output, and a line in the log says how much was dropped. Applies "
            "to jobs that start later. off: keep everything."
        ),
        "threshold",
        unit=tr_noop("GiB a job"),
        group="Jobs",
    ),
    Setting(
        "preemptible_groups",
        tr_noop("Preemptible groups"),
        tr_noop(
            "The jobs of these groups are preemptible. More urgent jobs and reservations suspend "
            "them, as with --preemptible. Separate the names by commas. Applies to jobs that are "
            "submitted later."
        ),
        "open choice",
        group="Jobs",
    ),
    Setting(
        "session_idle",
        tr_noop("End unused sessions"),
        tr_noop(
            "End a notebook or a shell that nobody has used for this time. Sessions with a shorter "
            "time of their own (--idle) keep it. off: only these end."
        ),
        "threshold",
        unit=tr_noop("min without use"),
        group="Jobs",
    ),
    Setting(
        "suspend_spare",
        tr_noop("Host memory kept free"),
        tr_noop(
            "A job or program is suspended only if this much host memory stays free for others."
        ),
        "number",
        unit="GiB",
        group="Jobs",
    ),
    Setting(
        "on_job_end",
        tr_noop("Run after each job"),
        tr_noop(
            "A program that the daemon runs after every job. It may have arguments, and runs "
            "without a shell and for at most a minute. GPUDECK_JOB, GPUDECK_STATUS and "
            "GPUDECK_NAME describe the job. Empty: none."
        ),
        "text",
        group="Jobs",
    ),
    Setting(
        "idle_util_percent",
        tr_noop("Idle below"),
        tr_noop("A device with a higher utilisation is not idle."),
        "number",
        unit=tr_noop("% utilisation"),
        group="Idle",
    ),
    Setting(
        "idle_dwell_s",
        tr_noop("Idle after"),
        tr_noop(
            "How long a device must be idle before the assistant may use it. Each eviction in the "
            "last ten minutes doubles this time. A job that needs the GPU takes it back at once: "
            "the assistant is notified, and killed if it has not left 0.1 s later."
        ),
        "number",
        unit=tr_noop("s without load"),
        group="Idle",
    ),
    Setting(
        "idle_hours_off",
        tr_noop("Assistant quiet hours"),
        tr_noop(
            "When the assistant must not use a GPU, such as 09:00-18:00. It may still write on the "
            "CPU. Empty: never."
        ),
        "text",
        group="Idle",
    ),
    Setting(
        "exclusive_programs",
        tr_noop("Exclusive programs"),
        tr_noop(
            "A GPU is busy while one of these programs runs on it. Give names such as blender, "
            "separated by commas, of programs that only draw; programs that compute always count. "
            "Jobs do not wait for these programs."
        ),
        "text",
        group="Idle",
    ),
    Setting(
        "model_folder",
        tr_noop("Model folder"),
        tr_noop(
            "A folder with the files of an RWKV-7 model, or a .pth file. Its weights are "
            ".safetensors files. Empty or template: no model; all texts are written from "
            "templates."
        ),
        "folder",
        group="Assistant",
    ),
    Setting(
        "model_device",
        tr_noop("Model device"),
        tr_noop("Where the model runs. On cuda it leaves the GPU as soon as a job needs it."),
        "choice",
        ("cpu", "cuda"),
        group="Assistant",
    ),
    Setting(
        "assistant_never",
        tr_noop("Blocked actions"),
        tr_noop(
            "Actions that the assistant must not propose. They are separated by commas, such as "
            "operate cancel, operate submit. Block for good, below a proposal, adds to them. The "
            "assistant does nothing that you have not allowed."
        ),
        "text",
        group="Assistant",
    ),
    Setting(
        "model_idle_minutes",
        tr_noop("Leave the GPU after"),
        tr_noop(
            "The model leaves the GPU after this time without a request. The next request loads it "
            "again."
        ),
        "number",
        unit=tr_noop("min without a request"),
        group="Assistant",
    ),
    Setting(
        "tune_attention",
        tr_noop("Tune attention"),
        tr_noop(
            "Measure the attention and matrix products of your programs while a GPU is idle. From "
            "then on, your programs use the backends that were fastest."
        ),
        "switch",
        group="Assistant",
    ),
    Setting(
        "report_jobs",
        tr_noop("Report on jobs"),
        tr_noop(
            "Write an HTML report on each job that ran this long. It is written once the devices "
            "are idle; the newest 200 are kept in the reports folder. off: never."
        ),
        "threshold",
        unit=tr_noop("min or longer"),
        group="Assistant",
    ),
    Setting(
        "report_daily",
        tr_noop("Daily report"),
        tr_noop(
            "When to write a report of the day, such as 08:00. It covers everything since the last "
            "one, and waits while the devices are busy. Empty: never."
        ),
        "text",
        group="Assistant",
    ),
    Setting(
        "report_language",
        tr_noop("Language of reports"),
        tr_noop(
            "The language of reports, unless a request asks for another one: English, German, "
            "French or Spanish."
        ),
        "choice",
        ("en", "de", "fr", "es"),
        group="Assistant",
    ),
    Setting(
        "report_digest",
        tr_noop("Send the daily report"),
        tr_noop("Also send the first paragraph of the daily report to the webhook of alerts."),
        "switch",
        group="Assistant",
    ),
    Setting(
        "alert_temperature",
        tr_noop("Too hot"),
        tr_noop(
            "Alert when a card is this close to its own slow-down temperature. Each of these "
            "thresholds is a number, or off."
        ),
        "threshold",
        unit=tr_noop("°C below slow-down, for 10 s"),
        group="Alerts",
    ),
    Setting(
        "alert_memory",
        tr_noop("Memory nearly full"),
        tr_noop("Alert when this share of the memory has been in use for a minute."),
        "threshold",
        unit=tr_noop("% of the memory, for 1 min"),
        group="Alerts",
    ),
    Setting(
        "alert_slowdown",
        tr_noop("Throttled"),
        tr_noop(
            "Alert when the clocks have been throttled for this long. Causes are heat, the "
            "hardware and a power brake."
        ),
        "threshold",
        unit=tr_noop("s of throttling"),
        group="Alerts",
    ),
    Setting(
        "alert_power_cap",
        tr_noop("Power limit reached"),
        tr_noop(
            "Alert when the power limit has throttled the clocks. off by default, since large "
            "matrix products often reach the limit."
        ),
        "threshold",
        unit=tr_noop("s at the limit"),
        group="Alerts",
    ),
    Setting(
        "alert_errors",
        tr_noop("Hardware errors"),
        tr_noop(
            "Alert at this number of hardware errors. These are uncorrected memory errors, failed "
            "remappings of a memory row, and Xid errors of the driver. If the driver asks for a "
            "reset, a restart or a drain, there is always an alert."
        ),
        "threshold",
        unit=tr_noop("errors"),
        group="Alerts",
    ),
    Setting(
        "alert_corrected",
        tr_noop("Memory errors"),
        tr_noop("Alert at this number of corrected memory errors within an hour."),
        "threshold",
        unit=tr_noop("errors within an hour"),
        group="Alerts",
    ),
    Setting(
        "alert_idle_job",
        tr_noop("Job holds an idle GPU"),
        tr_noop("Alert when a job holds a GPU that has been idle for this long."),
        "threshold",
        unit=tr_noop("min without load"),
        group="Alerts",
    ),
    Setting(
        "alert_idle_memory",
        tr_noop("Program holds idle memory"),
        tr_noop(
            "Alert when a program that is no job holds memory of a GPU that does nothing. It can "
            "be suspended."
        ),
        "threshold",
        unit=tr_noop("min without load"),
        group="Alerts",
    ),
    Setting(
        "alert_stuck_job",
        tr_noop("No progress"),
        tr_noop("Alert when a job that reports progress has made none."),
        "threshold",
        unit=tr_noop("min without progress"),
        group="Alerts",
    ),
    Setting(
        "alert_host",
        tr_noop("Machine unreachable"),
        tr_noop("Alert when a machine over ssh has been unreachable for this long."),
        "threshold",
        unit=tr_noop("min"),
        group="Alerts",
    ),
    Setting(
        "alert_notify",
        tr_noop("Notifications"),
        tr_noop("Show alerts as desktop notifications while the window is open."),
        "switch",
        group="Alerts",
    ),
    Setting(
        "quiet_hours",
        tr_noop("Quiet hours"),
        tr_noop(
            "When alerts are only listed, such as 22:00-07:00. You are notified afterwards of "
            "those that are still active. Empty: never."
        ),
        "text",
        group="Alerts",
    ),
    Setting(
        "webhook",
        tr_noop("Webhook"),
        tr_noop(
            "An http or https address that receives each alert. It gets JSON by POST, even while "
            "no window is open; chat services show its text. Empty: none."
        ),
        "text",
        group="Alerts",
    ),
    Setting(
        "clean_folders",
        tr_noop("Folders"),
        tr_noop(
            "Folders to search for core dumps and duplicate models. They are separated by commas. "
            "The caches of Triton, PyTorch and CUDA, the files of jobs and shared memory are "
            "always searched. Nothing else is ever touched."
        ),
        "text",
        group="Clean-up",
    ),
    Setting(
        "clean_caches",
        tr_noop("Unused kernels"),
        tr_noop(
            "Propose compiled kernels that nothing has used for this long. They are compiled again "
            "when they are needed. Each of these ages is a number, or off."
        ),
        "threshold",
        unit=tr_noop("days without use"),
        group="Clean-up",
    ),
    Setting(
        "clean_logs",
        tr_noop("Logs of jobs"),
        tr_noop("Propose logs that have not been read or written for this long."),
        "threshold",
        unit=tr_noop("days without use"),
        group="Clean-up",
    ),
    Setting(
        "clean_artefacts",
        tr_noop("Artefacts of jobs"),
        tr_noop("Propose files of jobs that have not been read or written for this long."),
        "threshold",
        unit=tr_noop("days without use"),
        group="Clean-up",
    ),
    Setting(
        "clean_cores",
        tr_noop("Core dumps"),
        tr_noop(
            "Propose core dumps that are older than this. The folders above and those of jobs are "
            "searched."
        ),
        "threshold",
        unit=tr_noop("days old"),
        group="Clean-up",
    ),
    Setting(
        "clean_duplicates",
        tr_noop("Duplicate models"),
        tr_noop(
            "Propose second copies of large model files. The first copy and the targets of links "
            "are kept."
        ),
        "threshold",
        unit=tr_noop("days without use"),
        group="Clean-up",
    ),
    Setting(
        "clean_memory",
        tr_noop("Shared memory"),
        tr_noop("Propose segments in /dev/shm that no process has had open for this long."),
        "threshold",
        unit=tr_noop("days without use"),
        group="Clean-up",
    ),
    Setting(
        "energy_price",
        tr_noop("Price of a kWh"),
        tr_noop(
            "The Dashboard uses this price to show the cost of the last 24 hours. 0: no cost "
            "is shown."
        ),
        "number",
        group="Energy",
    ),
    Setting(
        "currency", tr_noop("Currency"), tr_noop("The unit of the price."), "text", group="Energy"
    ),
    Setting(
        "language",
        tr_noop("Language"),
        tr_noop(
            "The language of the window. As the desktop: the desktop's language, if it is English, "
            "German, French or Spanish, else English. Applies when the window is opened again."
        ),
        "choice",
        ("desktop", "en", "de", "fr", "es"),
        group="Appearance",
    ),
    Setting(
        "theme",
        tr_noop("Theme"),
        tr_noop("Follow the desktop's light or dark style, or choose one."),
        "choice",
        ("system", "light", "dark"),
        group="Appearance",
    ),
    Setting(
        "scale",
        tr_noop("UI scale"),
        tr_noop("The size of everything, 0.75 to 3. Applies when the window is opened again."),
        "number",
        group="Appearance",
    ),
    Setting(
        "font_size",
        tr_noop("Font size"),
        tr_noop("The size of text, 8 to 18. Applies when the window is opened again."),
        "number",
        unit=tr_noop("pt"),
        group="Appearance",
    ),
)


CHOICES = {
    "auto": tr_noop("Automatic"),
    "on": tr_noop("On"),
    "off": tr_noop("Off"),
    "cpu": tr_noop("The CPU"),
    "cuda": tr_noop("A GPU"),
    "desktop": tr_noop("As the desktop"),
    "system": tr_noop("As the desktop"),
    "light": tr_noop("Light"),
    "dark": tr_noop("Dark"),
    "en": "English",
    "de": "Deutsch",
    "fr": "Français",
    "es": "Español",
}
"""What people read for each value of a choice; a language calls itself by its own name."""


def first_sentence(text: str) -> str:
    """Return the first sentence of a help, in any language."""
    first, end, _ = text.partition(". ")
    return first + end.rstrip()


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
            value = float(typed_number(text))
        except ValueError as e:
            title, typed = tr(setting.title), repr(text)
            raise UserError(
                tr("{setting} must be a number, or off; got {text}", setting=title, text=typed)
                if setting.kind == "threshold"
                else tr("{setting} must be a number; got {text}", setting=title, text=typed)
            ) from e
    if changed(settings, {setting.name: value}) == settings:
        return None
    return Configure({setting.name: value})
