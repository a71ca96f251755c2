"""Reach the queue of another machine: its daemon's socket is forwarded over the person's own ssh.

One connection serves a command: it is opened, asked for the socket and the environment there, and
closed at the end. The daemon here has no part in it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpudeck.language.text import Bytes, phrase
from gpudeck.scheduler.hosts import ssh
from gpudeck.scheduler.hosts.limited import TooMuch, run_limited
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.place import Place
from gpudeck.scheduler.protocol.progress import printable
from gpudeck.scheduler.protocol.settings import HostSettings

_MARK = b"gpudeck-place"
ANSWER_S = 30.0
MAX_ANSWER = 2**22
"""Bytes of what a login prints with its environment, which the kernel limits to 2 MiB by default.
"""
_MAX_ERRORS = 2**16
"""Bytes of the errors of ssh that are looked at."""
_POLL_S = 0.02
_SOCKET = re.compile(rb"/[^$%:\x00-\x1f\x7f]{1,4096}")
"""The sockets that are forwarded. In other paths ssh would fill in variables of this machine's
environment (`${NAME}`) and names (`%u`), and send what comes of it to the other one."""
_MOST_SHOWN = 200
_NOT_TAKEN = ("SSH_", "GPUDECK_", "PWD", "OLDPWD", "SHLVL", "_")
"""Beginnings of the names of variables that belong to the connection, not to a login."""
_QUESTION = (
    'h="$1"; case "$h" in "~/"*) h="$HOME/${h#"~/"}";; esac; s=; u=$(id -u); '
    'for p in "$GPUDECK_HOME" "${XDG_STATE_HOME:-$HOME/.local/state}/gpudeck" '
    '"/var/tmp/gpudeck-$u"; do p="${h:-$p}"; '
    'if test -z "$s" && test -n "$p" && test -S "$p/daemon.sock" && '
    'test $({ find "$p" -prune -user "$u"; find "$p/." "$p/daemon.sock" -prune -user "$u" '
    '! -perm -020 ! -perm -002; } | wc -l) -eq 3; then s="$p/daemon.sock"; fi; '
    f'done; printf "{_MARK.decode()}%s\\0%s\\0" "$s" "$HOME"; env -0'
)
"""Ask for a socket of this user, in a folder that nobody else may write to, nor replace by a link:
only a process of this user can listen on it."""


@contextmanager
def tunnel(name: str, host: HostSettings) -> Iterator[Place]:
    """Yield the place whose socket leads to the daemon of a machine.

    Raises UserError where the machine cannot be reached, or no daemon runs there.
    """
    with tempfile.TemporaryDirectory(prefix="gpudeck-") as folder:
        control, local = Path(folder) / "control", Path(folder) / "daemon.sock"
        with (Path(folder) / "errors").open("w+b") as errors:
            master = subprocess.Popen(
                ssh.command(
                    host, "-M", "-N", "-S", str(control),
                    "-o", "ControlPersist=no", "-o", "ClearAllForwardings=yes",
                ),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
            try:
                _wait_for(control, master)
                if not control.exists():
                    errors.seek(0)
                    why = ssh.problem(host, errors.read(_MAX_ERRORS), master.poll())
                    raise UserError(phrase("{name} cannot be reached: {why}", name=name, why=why))
                socket, home, env = _ask(name, host, control)
                forward = ("-O", "forward", "-L", f"{local}:{socket}")
                _run(name, host, control, forward)
                yield Place(name, local, home, env)
            finally:
                master.kill()
                master.wait()


def _wait_for(control: Path, master: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + ANSWER_S
    while not control.exists() and master.poll() is None and time.monotonic() < end:
        time.sleep(_POLL_S)


def _ask(name: str, host: HostSettings, control: Path) -> tuple[str, str, dict[str, str]]:
    """Return the socket of the daemon there, the home folder, and the environment of a login."""
    assert "'" not in _QUESTION, "a login shell such as csh reads it between single quotes"
    question = f"exec sh -c '{_QUESTION}' sh {shlex.quote(host.home)}"
    answer = _run(name, host, control, (), question)
    _, mark, rest = answer.partition(_MARK)  # after what the login shell prints
    socket, _, rest = rest.partition(b"\0")
    home, _, rest = rest.partition(b"\0")
    if not mark or not home:
        raise UserError(
            phrase("{name} did not say where GPU Deck runs; it has no sh, or no env", name=name)
        )
    if not socket:
        raise UserError(
            phrase(
                "GPU Deck does not run on {name}. Start it there: ssh {address} "
                "gpudeck daemon start",
                name=name,
                address=host.address,
            )
        )
    if not _SOCKET.fullmatch(socket):
        raise UserError(
            phrase(
                "the place of GPU Deck that {name} names cannot be reached over ssh: {place}",
                name=name,
                place=printable(socket.decode(errors="replace"))[:_MOST_SHOWN],
            )
        )
    try:
        pairs = [line.decode().partition("=") for line in rest.split(b"\0") if line]
        env = {key: value for key, _, value in pairs if not key.startswith(_NOT_TAKEN)}
        return socket.decode(), home.decode(), env
    except UnicodeDecodeError as e:
        raise UserError(phrase("the environment on {name} is not UTF-8", name=name)) from e


def _run(
    name: str, host: HostSettings, control: Path, options: Sequence[str], remote: str | None = None
) -> bytes:
    """Return the output of ssh over the connection that is open. Raises UserError."""
    # no configuration: the connection is what it asks for, and must not forward anything else
    words = ["ssh", "-F", "none", "-S", str(control), "-T", *options, "--", host.address]
    try:
        done = run_limited([*words, remote] if remote else words, MAX_ANSWER, ANSWER_S)
    except TimeoutError as e:
        raise UserError(
            phrase("{name} does not answer. See: gpudeck host test {name}", name=name)
        ) from e
    except TooMuch as e:
        raise UserError(
            phrase(
                "{name} sent over {most} when it was asked where GPU Deck runs. Look "
                "at what a login there prints: ssh {address} env",
                name=name,
                most=Bytes(MAX_ANSWER),
                address=host.address,
            )
        ) from e
    if done.status:
        why = ssh.problem(host, done.errors, done.status)
        raise UserError(phrase("the queue of {name} cannot be reached: {why}", name=name, why=why))
    return done.out
