"""The words that name settings, and the values that words stand for."""

from __future__ import annotations

import re
from functools import cache

from gpudeck.assistant.intents.tokens import unaccented

_NAMES = {
    "theme": "theme, dark mode, light mode, dark theme, light theme, colour scheme, color scheme,"
    "design, farbschema, dunkelmodus, dunkles design, thema, mode sombre, mode clair, tema,"
    "modo oscuro, modo claro, erscheinungsbild, apparence, apariencia",
    "alert_temperature": "temperature alert, temp alert, temperature alert threshold, temperature"
    " alarm, temperature threshold, temperature warning, temperaturalarm, temperaturwarnung,"
    "alarmtemperatur, alerte de temperature, seuil de temperature, alerta de temperatura,"
    "umbral de temperatura, alert temperature, overheating alert",
    "alert_memory": "memory alert, memory alarm, memory threshold, memory warning, speicheralarm,"
    "speicherwarnung, alerte de memoire, alerte memoire, alerta de memoria, alert memory",
    "alert_notify": "notifications, desktop notifications, notification, benachrichtigungen,"
    "benachrichtigung, notificaciones, alert notifications, meldungen",
    "telemetry_hz": "sampling rate, telemetry rate, refresh rate, update rate, polling rate,"
    "telemetry frequency, how often are the gpus read, how often are gpus read,"
    "how often are readings taken, how often do you read, abtastrate, messrate,"
    " aktualisierungsrate, frequence d echantillonnage, taux de rafraichissement,"
    "frecuencia de muestreo, frecuencia de actualizacion",
    "idle_dwell_s": "idle time, idle limit, idle threshold, idle delay, idle dwell, dwell time,"
    "leerlaufzeit, delai d inactivite,"
    "tiempo de inactividad",
    "log_limit": "log limit, log size limit, size of logs, protokollgrenze, limite des journaux,"
    "limite de registros",
    "quiet_hours": "quiet hours, ruhezeiten, ruhezeit, heures calmes, horas de silencio",
    "report_daily": "daily report time, time of the daily report, daily report setting",
    "model_device": "model device, device of the model",
    "model_idle_minutes": "model idle minutes, model idle time",
    "notify_minutes": "job notifications, notify minutes",
    "webhook": "webhook, web hook",
    "alert_stuck_job": "stuck job alert, stall alert",
    "alert_idle_job": "idle job alert, idle gpu alert",
    "scale": "scale, zoom, window scale, skalierung, echelle, escala",
    "source": "source of readings, source, datenquelle",
    "clean_logs": "log retention, age of logs",
    "drained": "drained gpus",
}
_VALUES = {
    "on": "True", "ein": "True", "an": "True", "active": "True", "enable": "True", "yes": "True",
    "aktiviere": "True", "activa": "True", "encendido": "True",
    "off": "off", "aus": "off", "desactive": "off", "disable": "off", "deaktiviere": "off",
    "desactiva": "off", "mute": "off", "silence": "off", "stop": "off", "coupe": "off",
    "apaga": "off", "stumm": "off", "apagado": "off", "aus.": "off",
    "dark": "dark", "dunkel": "dark", "dunkles": "dark", "dunkelmodus": "dark", "sombre": "dark",
    "oscuro": "dark", "light": "light", "hell": "light", "helles": "light", "clair": "light",
    "claro": "light", "system": "system", "systeme": "system", "sistema": "system",
    "cpu": "cpu", "cuda": "cuda", "gpu": "cuda",
}  # fmt: skip


_WORD = re.compile(r"\w+")


@cache
def _phrases() -> dict[str, str]:
    """Return the names of settings by their phrases in normalized words, the longest first."""
    found = {
        " ".join(phrase.split()): name
        for name, phrases in _NAMES.items()
        for phrase in [*map(str.strip, phrases.split(",")), name, name.replace("_", " ")]
    }
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def find_setting(text: str) -> str:
    """Return the setting that a text names, or an empty text."""
    said = f" {unaccented(' '.join(_WORD.findall(text.casefold())))} "
    return next((name for phrase, name in _phrases().items() if f" {phrase} " in said), "")


def value_in(text: str) -> str:
    """Return the value that a word of a text stands for, or an empty text."""
    words = re.findall(r"[^\W\d_]+", unaccented(text.casefold()))
    return next((_VALUES[word] for word in words if word in _VALUES), "")
