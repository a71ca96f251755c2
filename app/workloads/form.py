"""The form of a workload: built from the catalog, checked while it is typed."""

from __future__ import annotations

from collections.abc import Mapping

from accel.workloads.catalog import Param, Workload, split
from accel.workloads.grid import directions, shapes
from app.format.values import duration, memory, scaled
from scheduler.protocol.job_options import JobOptions, make_spec
from scheduler.verbs.submit import Submit

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_WHOLE_SCORES = {"math", "reference"}  # these hold the score matrix; the others never do


class Form:
    """Values as typed, and what is wrong with each."""

    def __init__(self, workload: Workload, device_kind: str) -> None:
        self.workload = workload
        self.values = {p.name: p.default_for(device_kind) for p in workload.params}

    def set(self, name: str, value: str) -> None:
        self.values[name] = value.strip()

    def errors(self) -> dict[str, str]:
        """For each field that cannot be used: why. Empty: the form may be sent."""
        wrong = {
            p.name: message
            for p in self.workload.params
            if (message := _wrong(p, self.values[p.name]))
        }
        if "kv_heads" in self.values and not wrong:
            try:
                shapes(self.values)
            except ValueError as e:
                wrong["kv_heads"] = str(e)
        return wrong

    def estimate(self) -> str:
        """What one call will compute and hold, in words; empty where the form is wrong."""
        if self.errors():
            return ""
        match self.workload.name:
            case "gemm":
                n, size = int(self.values["size"]), _BYTES[self.values["dtype"]]
                return f"{scaled(2.0 * n**3, 'FLOP')} a call · {memory(3.0 * n * n * size)} of matrices"
            case "copy":
                return f"{memory(2 * 2**20 * float(self.values['mib']))} of buffers"
            case "rain":
                return f"{self.values['texts']} texts by the model that the settings name"
            case _:
                return _attention(self.values)

    def submission(self) -> Submit:
        """The request that queues it. Raises ValueError where the form is wrong."""
        for message in self.errors().values():
            raise ValueError(message)
        w = self.workload
        options: JobOptions = {
            "name": w.name,
            "gpus": 1,
            "workload": w.name,
            "params": dict(self.values),
        }
        return Submit(make_spec(w.argv(self.values), options))


def _wrong(param: Param, value: str) -> str:
    try:
        param.check(value)
    except ValueError as e:
        return str(e).removeprefix(f"{param.name} ").removesuffix(f"; got {value!r}")
    return ""


def _attention(values: Mapping[str, str]) -> str:
    """How many shapes, how long they are timed, and what the largest computes and holds."""
    grid, ways = shapes(values), directions(values.get("direction", "both"))
    largest = max(grid, key=lambda shape: shape.flops(ways[-1]))
    cells = len(grid) * len(ways)
    contenders = split(values.get("backends", values.get("backend", "")))
    parts = (
        []
        if cells == 1
        else [
            f"{cells} shapes and directions, up to" if len(ways) > 1 else f"{cells} shapes, up to"
        ]
    )
    text = " ".join(
        (
            *parts,
            f"{scaled(largest.flops(ways[-1]), 'FLOP')} a call · {memory(largest.held)} of tensors",
        )
    )
    if _WHOLE_SCORES & set(contenders):
        text += f" · {memory(largest.scores)} of scores"
    seconds = float(values.get("seconds", 0)) * cells * len(contenders)
    return (
        text
        if cells * len(contenders) == 1 or not seconds
        else f"{text} · at most {duration(seconds)} of timing"
    )
