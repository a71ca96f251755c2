"""Read a workload's parameters from its command line, as the catalog defines them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from gpudeck.accel.workloads.catalog import AUTO, Param, Workload, split


class Values:
    """Hold checked parameters."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        """The parameters as text, as a user types them."""

    def integer(self, name: str) -> int:
        """Return a parameter as a whole number."""
        return int(self.given[name])

    def number(self, name: str) -> float:
        """Return a parameter as a number."""
        return float(self.given[name])

    def text(self, name: str) -> str:
        """Return a parameter as text."""
        return self.given[name]

    def flag(self, name: str) -> bool:
        """Return True for a flag that is set."""
        return self.given[name] == "yes"

    def several(self, name: str) -> tuple[str, ...]:
        """Return the values of a list."""
        return split(self.given[name])

    def as_params(self, workload: Workload) -> dict[str, str | int | float | bool]:
        """Return all parameters with their types; lists stay text, and yes or no becomes a bool."""
        return {p.name: self._typed(p) for p in workload.params}

    def _typed(self, param: Param) -> str | int | float | bool:
        text = self.given[param.name]
        if param.kind == "float":
            return float(text)
        if param.kind in ("int", "ints"):
            return int(text) if "," not in text else text
        return text == "yes" if text in ("yes", "no") else text


def parse(workload: Workload, argv: Sequence[str]) -> dict[str, str]:
    """Return the given parameters as text by name. Raises ValueError for unknown options."""
    parser = _Parser(
        prog=f"python -m {workload.module}", description=workload.summary, allow_abbrev=False
    )
    for p in workload.params:
        takes = (
            ", ".join(p.choices)
            if p.choices
            else "yes or no"
            if p.kind == "flag"
            else "any"
            if p.kind == "text"
            else f"{p.minimum:.10g} to {p.maximum:.10g}"
        )
        default = p.default if p.cpu_default is None else f"{p.default}, on a CPU {p.cpu_default}"
        automatic = f"{AUTO}: {p.auto}; " * bool(p.auto)
        option = f"--{p.name.replace('_', '-')}"
        parser.add_argument(
            option,
            dest=p.name,
            metavar=p.kind.upper(),
            help=f"{p.help} ({takes}; {automatic}default {default})",
        )
    return {
        name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}. See --help")
