"""The form of any command: what is typed, what is wrong with it, and the submission that it stands for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import make_spec, parse_indices, parse_variables
from scheduler.protocol.jobs import Spec
from scheduler.protocol.units import parse_bytes, parse_seconds
from scheduler.verbs.submit import Submit, SubmitMany


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    hint: str
    """What it looks like where it is empty."""
    parse: Callable[[str], Any]
    """Of a text that is not empty. Raises UserError."""
    columns: int = 1
    """How many of the form's five columns of editors and captions its editor takes."""


def _command(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as e:
        raise UserError(f"a command is needed, as in a terminal but without a shell: {e}") from e


def _folder(text: str) -> str:
    """Whether it is there is seen where the job is submitted: in a cluster, or made by a job before it, it need not be."""
    folder = Path(text).expanduser()
    if not folder.is_absolute():
        raise UserError(f"a whole path, such as /data/run, is needed; got {text}")
    return str(folder)


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise UserError(f"a whole number is needed; got {text!r}")
    return int(text)


def _jobs(text: str) -> tuple[int, ...]:
    return tuple(_whole(part) for part in text.replace(",", " ").split())


def _tags(text: str) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


def _variables(text: str) -> dict[str, str]:
    try:
        return parse_variables(shlex.split(text))
    except ValueError as e:
        raise UserError(f"NAME=VALUE is needed, with quotes as in a terminal: {e}") from e


HERE = "this machine"
AWAY = (
    Field("where", "Runs on", HERE, str),
    Field(
        "env", "Environment there", "e.g. WANDB_MODE=offline; nothing else is sent", _variables, 3
    ),
)
"""The row for those who have clusters."""
ROWS = (
    (Field("command", "Command", "python train.py --epochs 3", _command, 5),),
    AWAY,
    (
        Field("cwd", "Folder", "where GPU Deck was started", _folder, 3),
        Field("name", "Name", "the command's", str),
    ),
    (
        Field("gpus", "GPUs", "0: it sees none", _whole),
        Field("memory", "Memory on each", "e.g. 20GiB; empty: all", parse_bytes),
        Field("gpu_type", "Type of GPU", "e.g. h100; empty: any", str),
    ),
    (
        Field("priority", "Priority", "0; higher is earlier", _whole),
        Field("group", "Group", "can be limited", str),
        Field("timeout", "Time limit", "e.g. 2h; empty: none", parse_seconds),
    ),
    (
        Field("retries", "Retries", "0", _whole),
        Field("after", "After success of", "jobs, e.g. 12, 13", _jobs),
        Field("after_any", "After any end of", "jobs, e.g. 12, 13", _jobs),
    ),
    (
        Field("array", "Array", "e.g. 0-9: ten jobs", lambda text: tuple(parse_indices(text))),
        Field("tags", "Tags", "e.g. paper, v2", _tags),
        Field("notes", "Notes", "", str),
    ),
)
FIELDS = tuple(field for row in ROWS for field in row)


class JobForm:
    """Hold the texts that the user typed, by field; `where` is empty for this machine."""

    def __init__(self) -> None:
        self.values = dict.fromkeys((field.name for field in FIELDS), "")

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
        return None if errors or not command else make_spec(command, options)  # type: ignore[arg-type]

    def submission(self) -> Submit | SubmitMany | None:
        """Return the request that queues the job, or one job for each index of the array."""
        spec, indices = self.spec(), self._parse()[0].get("array")
        if spec is None:
            return None
        return Submit(spec) if indices is None else SubmitMany.array(spec, indices)

    def _parse(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values of the fields that are filled in, and a message for each wrong one."""
        values, errors = {}, {}
        for field in FIELDS:
            text = self.values[field.name].strip()
            if text and (self.values["where"] or field not in AWAY):
                try:
                    values[field.name] = field.parse(text)
                except UserError as e:
                    errors[field.name] = str(e)
        return values, errors
