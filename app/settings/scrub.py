"""Text that is passed on to strangers, without what is nobody's business: home folders, names, addresses, tokens."""

from __future__ import annotations

import getpass
import re
import socket
from pathlib import Path

from scheduler.protocol import paths

HIDDEN = "***"
_RULES = (
    (re.compile(r"\b([a-z][a-z0-9+.-]*)://\S+", re.I), r"\1://" + HIDDEN),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+\S+"), r"\1 " + HIDDEN),
    (
        re.compile(r"(?i)([\w-]*(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|auth)[\w-]*[\"']?\s*[:=]\s*)"
                   r"(\"[^\"]*\"|'[^']*'|\S+)"),
        r"\1" + HIDDEN,
    ),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|pk|rk|xox[a-z]|npm|pypi|AKIA|ASIA)[_-]?[A-Za-z0-9_-]{12,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]+(?:\.[\w-]+)*"), HIDDEN),  # a JSON web token
    (re.compile(r"(?<![\w./-])(?=[\w+=-]*\d)(?=[\w+=-]*[A-Za-z])[\w+=-]{24,}"), HIDDEN),
    (re.compile(r"/(home|Users)/[^/\s:'\"]+"), r"/\1/" + HIDDEN),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"), HIDDEN),
)  # fmt: skip


def scrub(text: str) -> str:
    """`text` for a bug report. Errs on the side of hiding: a long word with digits may be a token."""
    text = text.replace(str(paths.home()), "GPUDECK_HOME").replace(str(Path.home()), "~")
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    for name in {_user(), socket.gethostname()} - {"", "root", "localhost"}:
        text = re.sub(rf"\b{re.escape(name)}\b", HIDDEN, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry
        return ""
