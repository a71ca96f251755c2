"""Name the pages of the window. Free of Qt."""

from __future__ import annotations

from gpudeck.app.language.texts import tr, tr_noop

_TITLES = {
    "dashboard": tr_noop("Dashboard"),
    "jobs": tr_noop("Jobs"),
    "workloads": tr_noop("Workloads"),
    "assistant": tr_noop("Assistant"),
    "models": tr_noop("Models"),
    "alerts": tr_noop("Alerts"),
    "processes": tr_noop("Processes"),
    "hosts": tr_noop("Machines"),
    "cleanup": tr_noop("Clean up"),
    "settings": tr_noop("Settings"),
    "code": tr_noop("Your code"),
    "device": tr_noop("Device"),
    "welcome": tr_noop("Welcome"),
}
_NAMED_OTHERWISE = ("device", "welcome")
"""Pages whose headings are not their titles, or that are shown once."""


def page_key(place: int) -> str:
    """Return the key of the page at this place of the rail, from 1; the tenth has Ctrl+0."""
    return f"Ctrl+{place % 10}"


def title(page: str) -> str:
    """Return the title of a page."""
    return tr(_TITLES[page])


def titles() -> tuple[str, ...]:
    """Return the titles for which there is always room."""
    return tuple(title(page) for page in _TITLES if page not in _NAMED_OTHERWISE)
