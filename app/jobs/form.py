"""The form of a job: it parses the typed texts and makes the request."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.app.format.command_check import command_warning
from gpudeck.app.language.texts import tr, tr_count, tr_noop, tr_text, typed_number
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS, make_spec, parse_indices
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.submissions import PendingTokens, indexed
from gpudeck.scheduler.verbs.submit import Submit, SubmitMany

HERE = tr_noop("this machine")


class Field(NamedTuple):
    """Describe one field of the form."""

    name: str
    label: str
    """English, as is the placeholder."""
    hint: str
    """The placeholder."""
    parse: Callable[[str], Any]
    """Reads a text that is not empty. Raises UserError."""


def _parse_command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as e:
        text = tr("enter a command as in a terminal, but without a shell: {problem}", problem=e)
        raise UserError(text) from e


def _parse_folder(text: str) -> str:
    """Read the folder, which may be missing yet, or exist in the cluster alone."""
    folder = Path(text).expanduser()
    if not folder.is_absolute():
        raise UserError(tr("enter a whole path, such as /data/run; got {path}", path=text))
    return str(folder)


MAIN = ("command", "cwd", "gpus", "memory", "name")
"""The fields that are always shown, in this order; the others are shown on demand."""
_ALL = (
    Field("command", tr_noop("Command"), "python train.py --epochs 3", _parse_command),
    *(
        Field(
            option.name,
            option.label,
            option.hint,
            _parse_folder if option.name == "cwd" else option.parse,
        )
        for option in JOB_OPTIONS
        if option.hint is not None and option.parse is not None
    ),
    Field("array", tr_noop("Array"), tr_noop("e.g. 0-9: ten jobs"), parse_indices),
)
WHOLE_ROWS = ("env", "tags", "notes")
"""The fields on demand that have a row of their own, below those that share rows."""
FIELDS = (
    *sorted((field for field in _ALL if field.name in MAIN), key=lambda f: MAIN.index(f.name)),
    *(field for field in _ALL if field.name not in (*MAIN, *WHOLE_ROWS)),
    *(field for field in _ALL if field.name in WHOLE_ROWS),
)
"""All fields in the order in which they are shown."""


COPIED = (
    "where",
    "cwd",
    "name",
    "gpus",
    "memory",
    "gpu_type",
    "priority",
    "group",
    "timeout",
    "retries",
    "nice",
    "host_memory",
    "cpus",
    "tags",
    "notes",
)
"""The options that a template passes on."""
NUMBERS = ("memory", "host_memory", "timeout", "cpus")
"""The options that are one number with a unit, in which a decimal comma may be typed."""
LIMITS = ("host_memory", "cpus")
"""The options that need control groups, which not every machine gives to the daemon."""


def _write_size(size: int) -> str:
    return f"{size / 2**20:g}MiB"


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "memory": _write_size,
    "host_memory": _write_size,
    "cpus": lambda cpus: f"{cpus:g}",
    "timeout": lambda seconds: f"{seconds:g}s",
    "tags": ", ".join,
}
"""How values are written so that their fields read them again."""


class JobForm:
    """Hold the texts that the user typed, by field; `where` is empty for this machine."""

    def __init__(self) -> None:
        self.values = dict.fromkeys((field.name for field in FIELDS), "")
        self._tokens = PendingTokens()

    def places(self, clusters: Iterable[str]) -> list[str]:
        """Return where the job can run: "" for this machine, then the clusters.

        The chosen cluster is listed even if it was removed from the settings meanwhile.
        """
        return ["", *sorted({*clusters, self.values["where"]} - {""})]

    def errors(self) -> dict[str, str]:
        """Return a message for each wrong field. A missing command is not an error yet."""
        return self._parse()[1]

    def spec(self) -> Spec | None:
        """Return the job, or None if a field is wrong or there is no command yet.

        Raises:
            UserError: This window's environment cannot be sent to the daemon.
        """
        options, errors = self._parse()
        command = options.pop("command", ())
        options.pop("array", None)
        if "env" in options and "where" not in options:  # added to what this window has
            options["env"] = {**os.environ, **options["env"]}
        return None if errors or not command else make_spec(command, options)  # type: ignore[arg-type]

    def submission(self) -> Submit | SubmitMany | None:
        """Return the request that queues the job, or one job for each index of the array.

        It has the token of the last one with the same contents, unless that was answered.
        """
        spec, indices = self.spec(), self._parse()[0].get("array")
        if spec is None:
            return None
        if indices is None:
            return Submit(spec, self._tokens.token_of([spec]))
        specs = indexed(spec, indices)
        return SubmitMany.of(specs, self._tokens.token_of(specs))

    def answered(self, request: Submit | SubmitMany) -> None:
        """Take note that a request was carried out: the same contents are new jobs now."""
        self._tokens.answered(request.token)

    def fill(self, spec: Spec) -> None:
        """Take over the options of an earlier job, without what it waited for."""
        self.clear()
        self.values["command"] = shlex.join(spec.argv)
        for name in COPIED:
            value = getattr(spec, name)
            if not value or (name == "name" and value == Path(spec.argv[0]).name):
                continue
            write = _WRITTEN.get(name, str)
            self.values[name] = write(value)

    def clear(self) -> None:
        """Empty all fields."""
        self.values = dict.fromkeys(self.values, "")

    def warnings(self) -> dict[str, str]:
        """Return what will not be found, by field; a job before this one may make it."""
        spec = self.spec()
        if spec is None or spec.where or spec.after or spec.after_any:
            return {}
        if not Path(spec.cwd).is_dir():
            return {"cwd": tr("There is no folder {path}.", path=spec.cwd)}
        found = command_warning(spec.argv, spec.cwd, spec.env.get("PATH", ""))
        return {"command": capitalized(found)} if found else {}

    @property
    def without_gpu(self) -> bool:
        """Return True if a job of this machine asks for no device."""
        values, _ = self._parse()
        asks = values.get("gpus") or values.get("memory") or values.get("gpu_type")
        return bool(values.get("command")) and not asks and "where" not in values

    @property
    def scope(self) -> str:
        """Return to which jobs a forecast applies, as the beginning of its sentence."""
        indices = self._parse()[0].get("array")
        if indices is None:
            return ""
        return tr_count("First of {n} job: ", "First of {n} jobs: ", len(indices))

    def _parse(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values of the fields that are filled in, and a message for each wrong one."""
        values, errors = {}, {}
        for field in FIELDS:
            text = self.values[field.name].strip()
            if text:
                try:
                    typed = typed_number(text) if field.name in NUMBERS else text
                    values[field.name] = field.parse(typed)
                except UserError as e:
                    errors[field.name] = tr_text(e.message)
        return values, errors
