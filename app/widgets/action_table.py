"""The one table of what the user can do: menus, shortcuts, the palette and the sheet share it.

A page connects the actions that it carries out (see `gpudeck.app.widgets.actions`). Free of Qt.
"""

from __future__ import annotations

from typing import NamedTuple

from gpudeck.app.language.texts import tr, tr_noop


class ActionInfo(NamedTuple):
    """Describe one action."""

    name: str
    title: str
    """What it does, as a menu says it, in English; whoever shows it calls `tr`."""
    keys: tuple[str, ...] = ()
    page: str = ""
    """The page that carries it out, as the window calls it; empty for the window itself."""
    words: str = ""
    """Other words that the palette finds it by, in English; it finds their translations as well."""
    listed: bool = True
    """False for what the palette leaves out, as it needs a place in the page."""


def _page(page: str, *infos: ActionInfo) -> tuple[ActionInfo, ...]:
    return tuple(info._replace(page=page) for info in infos)


A = ActionInfo
ACTIONS = (
    A("palette", "Search or run a command", ("Ctrl+K",), listed=False),
    A("shortcuts", "Show all shortcuts", ("?",), words="keys keyboard sheet"),
    A("help", "Show the manual of this page", ("F1",), words="help documentation"),
    A("compact", "Show or hide the compact strip", ("Ctrl+T",), words="mini on top"),
    A("strip", "Collapse or show the GPUs above the dashboard", ("Ctrl+G",), words="tiles map"),
    A("theme.light", "Use the light theme", words="appearance colours bright"),
    A("theme.dark", "Use the dark theme", words="appearance colours night"),
    A("theme.system", "Use the desktop's theme", words="appearance colours"),
    A("quit", "Close the window", ("Ctrl+Q",), words="exit quit leave"),
    *_page(
        "dashboard",
        A("time.live", "Go live", ("L",), words="live now charts"),
        A("time.in", "Zoom in", ("+", "="), words="charts time"),
        A("time.out", "Zoom out", ("-",), words="charts time"),
        A("time.cursor", "Set or remove the cursor", ("C",), words="charts values"),
        A("time.compare", "Compare with the time before", ("B",), words="charts"),
        A("time.next", "Go to the next job", ("J",), words="charts time"),
        A("time.previous", "Go to the previous job", ("Shift+J",), words="charts time"),
        A("time.value", "Give the next value the full lanes", ("V",), words="charts metric"),
        A("time.export", "Export what the charts show", ("Ctrl+E",), words="csv save file"),
    ),
    *_page(
        "device",
        A("device.before", "Show the previous device", ("Alt+Left",), listed=False),
        A("device.after", "Show the next device", ("Alt+Right",), listed=False),
        A("device.free", "Free this GPU for two hours", listed=False),
        A("device.leave", "Go back to the dashboard", ("Esc",), listed=False),
    ),
    *_page(
        "cleanup",
        A("clean.move", "Move the selected items to the trash", ("Del",), words="delete remove"),
        A("clean.again", "Scan again", ("F5",), words="search refresh"),
        A("clean.undo", "Undo the last cleanup", ("Ctrl+Z",), words="restore trash"),
        A("clean.leave", "Leave the question", ("Esc",), listed=False),
    ),
    *_page("settings", A("settings.search", "Search the settings", ("Ctrl+F",), words="find")),
    *_page(
        "jobs",
        A("job.new", "New job", ("Ctrl+N",), words="submit queue command"),
        A("job.cancel", "Cancel or stop the selected jobs", ("Del",), words="kill end remove"),
        A("job.undo", "Undo the last removal from the queue", ("Ctrl+Z",), words="restore"),
        A("job.repeat", "Run the job again", ("Ctrl+R",), words="repeat retry"),
        A("job.template", "New job like this one", ("Ctrl+D",), words="duplicate copy template"),
        A("job.hold", "Hold or release the job", ("Ctrl+H",), words="pause"),
        A(
            "job.suspend",
            "Suspend the job, or resume it",
            ("Ctrl+Shift+S",),
            words="gpu free sleep continue",
        ),
        A("job.earlier", "Move the job up in the queue", ("Alt+Up",), words="earlier"),
        A("job.later", "Move the job down in the queue", ("Alt+Down",), words="later"),
        A("job.notify", "Notify me when the job ends", ("Ctrl+Shift+N",), words="bell desktop"),
        A(
            "job.details",
            "Show or hide the details of the job",
            ("Ctrl+I",),
            words="fold log facts",
        ),
        A("job.log", "Show the log full-screen", ("F11",), words="output"),
        A("job.report", "Save a report on the job", ("Ctrl+Shift+R",), words="pdf html"),
        A("job.copy", "Copy the command of the job", words="clipboard"),
        A("job.folder", "Open the folder of the job", words="directory files"),
        A("jobs.pause", "Pause or resume the queue", words="stop start"),
        A("jobs.groups", "Groups and clusters", ("Ctrl+Shift+G",), words="limits ray slurm"),
        A("jobs.bookings", "Reserve GPUs", ("Ctrl+Shift+B",), words="reservations booking keep"),
        A("jobs.usage", "Usage of each person", ("Ctrl+Shift+U",), words="hours energy verdicts"),
        A("jobs.timeline", "Show the queue as a timeline", ("Ctrl+Shift+T",), words="gantt when"),
        A("jobs.search", "Search the jobs", ("Ctrl+F",), words="filter find"),
        A("log.search", "Search the log", ("Ctrl+Shift+F",), words="find output"),
        A("log.next", "Go to the next match in the log", ("F3",), listed=False),
        A("log.previous", "Go to the previous match in the log", ("Shift+F3",), listed=False),
    ),
    *_page(
        "alerts",
        A("alert.acknowledge", "Acknowledge the alert", ("A",), words="seen mark"),
        A("alert.all", "Acknowledge all alerts", ("Shift+A",), words="seen mark clear"),
        A("alert.show", "Show the job or the device of the alert", words="open go"),
        A("alert.save", "Save a recording of the alert", words="incident export replay file"),
        A("alert.copy", "Copy the text of the alert", ("Ctrl+C",), words="clipboard"),
        A("alert.search", "Search the alerts", ("Ctrl+F",), words="filter find history"),
    ),
    *_page(
        "processes",
        A("process.end", "End the process", ("Del",), words="kill stop terminate"),
        A(
            "process.suspend",
            "Take the process off the GPU",
            ("Ctrl+Shift+S",),
            words="suspend free memory",
        ),
        A("process.resume", "Bring suspended processes back", words="resume suspended"),
        A("process.job", "Show the job of the process", ("Ctrl+J",), words="queue"),
        A("process.copy", "Copy the command of the process", ("Ctrl+C",), words="clipboard"),
        A("process.pid", "Copy the process ID", words="clipboard pid"),
        A("process.sort", "Sort by the column of the current cell", ("S",), listed=False),
        A("process.group", "Group the processes", ("Ctrl+Shift+G",), words="user job container"),
        A("process.fold", "Fold or unfold all groups", ("Ctrl+Shift+F",), words="collapse expand"),
        A("process.search", "Search the processes", ("Ctrl+F",), words="filter find"),
        A("process.leave", "Leave the question", ("Esc",), listed=False),
    ),
    *_page(
        "hosts",
        A("host.add", "Add a machine", ("Ctrl+N",), words="ssh remote server host"),
        A("host.test", "Connect to the machine once", ("Ctrl+R",), words="test ssh check host"),
        A("host.remove", "Remove the machine", ("Del",), words="ssh host delete"),
        A("host.copy", "Copy the command that logs in there", words="ssh clipboard host"),
        A("host.leave", "Leave the question or the form", ("Esc",), listed=False),
    ),
    *_page(
        "code",
        A("code.open", "Open a folder of code", ("Ctrl+O",), words="attention inject accelerate"),
        A("code.scan", "Search the code again", ("F5",), words="scan attention inject"),
        A("code.prove", "Prove the change of the file", ("Ctrl+P",), words="run compare"),
        A("code.apply", "Apply the change of the file", ("Ctrl+Return",), words="link accelerate"),
        A("code.undo", "Undo the change of the file", ("Ctrl+Z",), words="restore"),
        A("code.leave", "Leave the question or the page", ("Esc",), listed=False),
    ),
    *_page("models", A("models.leave", "Go back to the assistant", ("Esc",), listed=False)),
    *_page(
        "assistant",
        A("chat.new", "New conversation", ("Ctrl+N",), words="chat"),
        A("chat.ask", "Type a question", ("Ctrl+L",), words="assistant prompt"),
        A("chat.again", "Write another answer", ("Ctrl+R",), words="repeat regenerate"),
        A("chat.brief", "Write a brief", words="report summary ten minutes"),
        A("chat.search", "Search the conversations", ("Ctrl+F",), words="find"),
        A(
            "chat.models",
            "Choose, add, serve or remove a model",
            ("Ctrl+M",),
            words="download stop rwkv llama",
        ),
        A("chat.export", "Export the conversation", words="save markdown json"),
    ),
)
KEYS = (
    ("jobs", "Unfold or fold an array or a group", "Right, Left"),
    ("jobs", "Select all jobs", "Ctrl+A"),
    ("jobs", "Go to the first or the last job", "Home, End"),
    ("jobs", "Queue the job of the form", "Return"),
    ("dashboard", "Move through the time", "Left, Right"),
    ("dashboard", "Move the cursor", "Shift+Left, Shift+Right"),
    ("alerts", "Show the job or the device", "Return"),
    ("alerts", "Raise or lower the threshold of a chart", "Up, Down"),
    ("processes", "Unfold or fold a group", "Right, Left"),
    ("processes", "Go to the first or the last process", "Home, End"),
    ("assistant", "Edit the last question", "Up"),
    ("", "Leave a question, a form or a page", "Esc"),
    ("", "Go to the next field, or to the previous one", "Tab, Shift+Tab"),
)
"""Keys that a widget handles by itself: the page, or an empty text for all; what they do; and
the keys."""
_NAMES = (
    tr_noop("Ctrl"),
    tr_noop("Shift"),
    tr_noop("Alt"),
    tr_noop("Esc"),
    tr_noop("Tab"),
    tr_noop("Return"),
    tr_noop("Del"),
    tr_noop("Home"),
    tr_noop("End"),
    tr_noop("Left"),
    tr_noop("Right"),
    tr_noop("Up"),
    tr_noop("Down"),
)
"""The names of keys in `ActionInfo.keys` that a language may change."""
_BY_NAME = {info.name: info for info in ACTIONS}


def action_info(name: str) -> ActionInfo:
    """Return an action by its name."""
    return _BY_NAME[name]


def hint(name: str, text: str = "") -> str:
    """Return a tooltip: a text, or the action's title, with its first key."""
    info = _BY_NAME[name]
    said = text or tr(info.title)
    return f"{said} ({key_names(info.keys[0])})" if info.keys else said


def key_names(keys: str) -> str:
    """Return keys such as Ctrl+Return as keyboards of the window's language name them."""
    return "+".join(map(tr, keys.split("+")))
