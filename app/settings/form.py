"""List the settings with titles, help and editors, and convert their values from and to text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gpudeck.app.language.texts import tr, tr_noop, typed_number
from gpudeck.scheduler.protocol.devices import card_name
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.setting_table import About, PersonalSettings, abouts
from gpudeck.scheduler.protocol.settings import Settings, changed
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.verbs.control import Configure

Kind = Literal["choice", "list", "source", "switch", "number", "threshold", "text", "folder"]
"""A threshold is a number or "off"; a switch is "on" or "off"."""


@dataclass(frozen=True)
class Setting:
    """Describe one setting in the form; its texts are English, and translated where shown."""

    name: str
    about: About
    kind: Kind
    choices: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return its name for people."""
        return self.about.title

    @property
    def help(self) -> str:
        """Return what it is for."""
        return self.about.help

    @property
    def unit(self) -> str:
        """Return what stands beside its field."""
        return self.about.measure or self.about.unit

    @property
    def group(self) -> str:
        """Return the heading that it stands under."""
        return self.about.group


def _setting(name: str, kind: Any, about: About) -> Setting:
    """Return a setting of the table, with the editor that fits its type."""
    if get_origin(kind) is Literal:
        return Setting(name, about, "choice", get_args(kind))
    if kind in (bool, float, str):
        editors: dict[type, Kind] = {
            bool: "switch", float: "number", str: about.editor or "text"
        }  # fmt: skip
        return Setting(name, about, editors[kind], about.choices)
    return Setting(name, about, "threshold")


_TYPES = get_type_hints(PersonalSettings)
SETTINGS = tuple(_setting(name, _TYPES[name], about) for name, about in abouts().items())
GROUPS = tuple(dict.fromkeys(setting.group for setting in SETTINGS))
"""The groups of settings, in the order of the page."""


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


def offered(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return what can be added to each setting that is a list, with what people know it by."""
    gpus = [s for s in snapshot.devices if s.device.kind != "cpu" and not s.device.host]
    programs = {p.name for s in gpus if s.reading for p in s.reading.processes if not p.job}
    groups = {job.spec.group for job in snapshot.jobs if job.spec.group}
    return {
        "drained": {
            s.device.number: f"{label(s.device)} · {card_name(s.device.name)}" for s in gpus
        },
        "ignored_programs": {name: name for name in sorted(programs)},
        "preemptible_groups": {name: name for name in sorted(groups)},
    }


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
