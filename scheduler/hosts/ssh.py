"""The person's own ssh: its command line, and what its errors mean.

Their keys, agent, ProxyJump and known_hosts are used as they are. Nothing is asked: a question of
ssh is an error, which says what to do.
"""

from __future__ import annotations

import base64
import shlex
import zlib
from pathlib import Path

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.hosts import reader
from gpudeck.scheduler.protocol.progress import printable, unescaped
from gpudeck.scheduler.protocol.settings import HostSettings

CONNECT_S = 10
_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": CONNECT_S,
    "ConnectionAttempts": 1,
    # a connection over which nothing comes for 15 s is closed
    "ServerAliveInterval": 5,
    "ServerAliveCountMax": 3,
    # the machine gets neither the agent nor the display, and no command of the configuration runs
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "EscapeChar": "none",
    "LogLevel": "ERROR",
}
_MAX_PROBLEM = 300


def command(host: HostSettings, *options: str, remote: str | None = None) -> list[str]:
    """Return the command line of ssh, with further options, and what runs on the machine."""
    words = ["ssh"]
    if host.config:
        words += ["-F", str(Path(host.config).expanduser())]
    for name, value in _OPTIONS.items():
        words += ["-o", f"{name}={value}"]
    words += [*options, "--", host.address]
    return words if remote is None else [*words, remote]


def reading_command(host: HostSettings) -> list[str]:
    """Return the command line that runs the reader on the machine."""
    # a master of another connection may be used, but must not live on with our pipes
    alone = ("-T", "-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes")
    return command(host, *alone, remote=reader_command(host.home))


def reader_command(home: str) -> str:
    """Return a command for any login shell that reads the GPUs: in Python, else in sh.

    Args:
        home: The state folder of the GPU Deck there; empty for the usual one.
    """
    program = base64.b64encode(zlib.compress(Path(reader.__file__).read_bytes(), 9)).decode()
    unpack = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"
    asleep = (
        "z=; for d in /sys/bus/pci/devices/*; do v=; c=; p=; read v 2>/dev/null <$d/vendor; "
        "read c 2>/dev/null <$d/class; read p 2>/dev/null <$d/power/runtime_status; "
        "case $v$c$p in 0x10de0x03*suspended) z=1;; esac; done"
    )
    query = f"nvidia-smi --query-gpu={reader.SMI} --format=csv,noheader,nounits 2>&1"
    script = (
        'if python3 -c "import sys;sys.exit(sys.version_info<(3,6))" 2>/dev/null; '
        f'then exec python3 -u -c "{unpack}" {program} "$1"; fi; '
        f"command -v nvidia-smi >/dev/null 2>&1 || {{ echo {reader.MARK}none; exit 1; }}; "
        f'while :; do {asleep}; if test -n "$z"; then echo {reader.MARK}asleep; '
        f'else {query} | sed "s/^/{reader.MARK}csv /"; echo {reader.MARK}end; fi; '
        f"sleep {reader.INTERVAL_S:.0f}; done"
    )
    assert "'" not in script, "a login shell such as csh reads it between single quotes"
    return f"exec sh -c '{script}' sh {shlex.quote(home)}"


def problem(host: HostSettings, errors: bytes, status: int | None) -> Message:
    """Return why a connection ended, in one line, from what ssh wrote.

    Args:
        errors: What ssh wrote to its standard error; it may hold anything.
        status: The exit status of ssh; None where it was ended because nothing came.
    """
    text = printable_lines(errors)
    lines = text.splitlines()
    last = lines[-1][:_MAX_PROBLEM] if lines else ""
    shown = shlex.join(["ssh", *(["-F", host.config] if host.config else []), host.address])
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return phrase(
            "its host key changed, so somebody may be in between. If you know why, remove the old "
            "key with ssh-keygen -R, and connect once with: {command}",
            command=shown,
        )
    if "Host key verification failed" in text:
        return phrase("its host key is not known yet. Connect once with: {command}", command=shown)
    if "Permission denied" in text:
        return phrase("it refused the key ({quote}). Check: {command}", quote=last, command=shown)
    if status is None and last:
        return phrase("it sent no readings ({quote})", quote=last)
    if status is None:
        return phrase("it sent no readings")
    if status == 255:
        return last or phrase("ssh ended without a reason")
    if last:
        return phrase("its reader ended with status {n}: {quote}", n=status, quote=last)
    return phrase("its reader ended with status {n}", n=status)


def printable_lines(data: bytes) -> str:
    """Return foreign bytes as lines that cannot control a terminal, without empty ones."""
    text = unescaped(data.decode(errors="replace")).replace("\r", "\n")
    return "\n".join(line for part in text.split("\n") if (line := printable(part).strip()))
