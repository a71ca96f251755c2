"""Run the daemon of all users by a script of /etc/init.d, where there is no systemd."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from gpudeck.app.cli.system.boot_unit import Installed, not_started
from gpudeck.language.text import phrase
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

SCRIPT = Path("/etc/init.d/gpudeck")
_STARTER = "start-stop-daemon"


def script_text() -> str:
    """Return the script, which starts the daemon again if it ends otherwise than asked."""
    gpudeck = shlex.join([sys.executable, "-P", "-m", "gpudeck"])
    home = shlex.quote(str(paths.shared_home()))
    return f"""\
#!/bin/sh
# Written by: gpudeck daemon install --system
### BEGIN INIT INFO
# Provides:          gpudeck
# Required-Start:    $local_fs $remote_fs
# Required-Stop:     $local_fs $remote_fs
# Default-Start:     2 3 4 5
# Default-Stop:      0 1 6
# Short-Description: GPU Deck: job queue and monitor of all users
### END INIT INFO
export GPUDECK_HOME={home}
pid=/run/gpudeck.pid

start() {{
    mkdir -p -m 711 "$GPUDECK_HOME"
    {_STARTER} --start --oknodo --background --make-pidfile --pidfile "$pid" --umask 077 \\
        --exec /bin/sh -- -c \\
        'until {gpudeck} daemon run --system; do sleep 5; done >>"$GPUDECK_HOME/daemon.log" 2>&1'
}}

stop() {{
    {_STARTER} --stop --oknodo --pidfile "$pid" --remove-pidfile
    {gpudeck} daemon stop --force  # running jobs continue
}}

case "$1" in
    start) start ;;
    stop) stop ;;
    restart | force-reload) stop && start ;;
    status) {gpudeck} daemon status ;;
    *) echo "usage: $0 start|stop|restart|status" >&2; exit 2 ;;
esac
"""


def install() -> Installed:
    """Write the script, have it run at boot, and start the daemon. Raises UserError."""
    if not SCRIPT.parent.is_dir() or shutil.which(_STARTER) is None:
        raise UserError(
            phrase(
                "this machine has neither systemd nor scripts in /etc/init.d with {program}. "
                "Have your supervisor run: {command}",
                program=_STARTER,
                command="gpudeck daemon run --system",
            )
        )
    try:
        SCRIPT.write_text(script_text())
        SCRIPT.chmod(0o755)
    except OSError as e:
        why = str(e.strerror)
        raise UserError(
            phrase("the script {file} cannot be written: {why}", file=str(SCRIPT), why=why)
        ) from e
    at_boot = unit.run("update-rc.d", SCRIPT.name, "defaults")
    problem = unit.run(str(SCRIPT), "start")
    notes = (
        *((phrase("It is not started at boot: {why}", why=at_boot),) if at_boot else ()),
        *((not_started(problem),) if problem else ()),
    )
    return Installed(str(SCRIPT), not problem, notes)


def uninstall() -> Installed:
    """Stop the daemon and remove the script. Raises UserError."""
    unit.run(str(SCRIPT), "stop")
    try:
        SCRIPT.unlink()
    except OSError as e:
        why = str(e.strerror)
        raise UserError(
            phrase("the script {file} cannot be removed: {why}", file=str(SCRIPT), why=why)
        ) from e
    unit.run("update-rc.d", SCRIPT.name, "remove")
    return Installed(str(SCRIPT), False, ())
