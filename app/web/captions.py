"""The fixed texts of the page, in the language of the window."""

from __future__ import annotations

from gpudeck.app.language.texts import language, tr


def captions() -> dict[str, str]:
    """Return the texts by the names that the scripts of the page use."""
    return {
        "language": language(),
        "devices": tr("Devices"),
        "queue": tr("Queue"),
        "jobs": tr("Jobs"),
        "running": tr("Running"),
        "waiting": tr("Waiting"),
        "ended": tr("Ended"),
        "bookings": tr("Bookings"),
        "back": tr("Back"),
        "log": tr("Log"),
        "no_output": tr("No output yet"),
        "details": tr("Details"),
        "history": tr("Timeline"),
        "printed": tr("What the job prints"),
        "verdicts": tr("Verdicts"),
        "usage": tr("Use of its devices"),
        "utilisation": tr("Utilisation"),
        "memory": tr("Memory"),
        "power": tr("Power"),
        "temperature": tr("Temperature"),
        "free": tr("Free"),
        "now": tr("now"),
        "no_jobs": tr("No jobs yet"),
        "no_bookings": tr("No GPU is reserved"),
        "unplaced": tr("Start unknown"),
        "show_all": tr("Show all"),
        "live": tr("live"),
        "lost": tr("The connection was lost; trying again"),
        "minutes_10": tr("10 min"),
        "hour": tr("1 h"),
        "day": tr("24 h"),
        "week": tr("7 days"),
    }
