"""Check what is typed into the form of a workload, and estimate its cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gpudeck.accel.workloads.catalog import AUTO, Param, Workload, split
from gpudeck.accel.workloads.grid import ELEMENT_BYTES, directions, shapes
from gpudeck.app.format.values import duration, memory, scaled
from gpudeck.app.language.texts import tr, tr_count, tr_text
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
from gpudeck.scheduler.protocol.submissions import PendingTokens
from gpudeck.scheduler.verbs.submit import Submit

CHOSEN = "auto"
"""What stands in a field whose value is chosen by itself."""
_WITH_SCORES = {"math", "reference"}
"""The backends that hold the whole score matrix."""


class WorkloadForm:
    """Hold the values as typed."""

    def __init__(self, workload: Workload, device_kind: str) -> None:
        self.workload, self._device_kind = workload, device_kind
        self.values = {p.name: p.default_for(device_kind) for p in workload.params}
        self._tokens = PendingTokens()

    def set(self, name: str, value: str) -> None:
        """Take what was typed; nothing where the value is chosen by itself."""
        value = value.strip()
        chosen = self._chosen_by_itself(name) and value in ("", CHOSEN)
        self.values[name] = AUTO if chosen else value

    def typed(self, name: str) -> str:
        """Return the value as a user types it, which is nothing where it is chosen by itself."""
        value = self.values[name]
        return "" if self._chosen_by_itself(name) and value == AUTO else value

    def _chosen_by_itself(self, name: str) -> bool:
        return any(p.name == name and p.auto for p in self.workload.params)

    def shown(self) -> frozenset[str]:
        """Return the parameters that the operation takes, and those that are not valid."""
        return frozenset(p.name for p in self.workload.used(self.values)) | self.errors().keys()

    def errors(self) -> dict[str, str]:
        """Return what is wrong with each field that is not valid."""
        wrong = {
            p.name: message
            for p in self.workload.params
            if (message := _wrong(p, self.values[p.name])) is not None
        }
        if "kv_heads" in self.values and not wrong:
            try:
                shapes(self.values)
            except ValueError as e:
                wrong["kv_heads"] = tr_text(e.args[0])
        return wrong

    def estimate(self) -> str | None:
        """Describe what one call will compute and allocate; None for an invalid form."""
        if self.errors():
            return None
        if self.values.get("operation", "attention") != "attention":
            return _several_sizes(self.values)
        return _ESTIMATES.get(self.workload.name, _attention)(self.values)

    def submission(self) -> Submit:
        """Return the request that queues the workload.

        It has the token of the last one with the same contents, unless that was answered.

        Raises:
            ValueError: The form is not valid.
        """
        for message in self.errors().values():
            raise ValueError(message)
        w = self.workload
        options: JobOptions = {
            "name": w.job_name(self.values),
            "gpus": w.gpus(self.values, self._device_kind),
            "workload": w.name,
            "params": dict(self.values),
        }
        spec = make_spec(w.argv(self.values), options)
        return Submit(spec, self._tokens.token_of([spec]))

    def answered(self, request: Submit) -> None:
        """Take note that a request was carried out: the same contents are a new job now."""
        self._tokens.answered(request.token)


def explain(param: Param) -> str:
    """Return what a parameter means, and what is chosen where it is empty."""
    text = f"{capitalized(tr(param.help))}."
    return f"{text} " + tr("Empty: {what}.", what=tr(param.auto)) if param.auto else text


def _wrong(param: Param, value: str) -> str | None:
    if (mistake := param.find_mistake(value)) is None:
        return None
    if mistake.got in ("", value, repr(value)):
        return tr_text(mistake.text)
    return tr_text(phrase("{problem}; got {value}", problem=mistake.text, value=mistake.got))


def _several_sizes(values: Mapping[str, str]) -> str:
    return tr_count(
        "{operation} of {n} size, by everything that can compute it",
        "{operation} of {n} sizes, by everything that can compute it",
        len(split(values["sizes"])),
        operation=values["operation"],
    )


def _gemm(values: Mapping[str, str]) -> str:
    n, dtype = int(values["size"]), values["dtype"]
    # both factors in FP8, and their product in bfloat16
    matrices = memory(float(n * n) * (3 * ELEMENT_BYTES[dtype] if dtype in ELEMENT_BYTES else 4))
    return tr("{work} a call · {size} of matrices", work=scaled(2.0 * n**3, "FLOP"), size=matrices)


def _precision(values: Mapping[str, str]) -> str:
    sizes = (float(values[name]) for name in ("rows", "inputs", "outputs"))
    return tr("{work} a call", work=scaled(6.0 * math.prod(sizes), "FLOP"))


def _linear_attention(values: Mapping[str, str]) -> str:
    elements = math.prod(float(values[name]) for name in ("batch", "tokens", "heads", "head_dim"))
    size = memory(elements * ELEMENT_BYTES[values["dtype"]])
    return tr("{size} of each of queries, keys and values", size=size)


def _distributed(values: Mapping[str, str]) -> str:
    whole = (float(values[name]) for name in ("seq", "seq", "heads", "head_dim"))
    share = 2.0 if values["causal"] == "yes" else 4.0
    return tr("{work} a call", work=scaled(share * math.prod(whole), "FLOP"))


def _train(values: Mapping[str, str]) -> str:
    tokens = int(values["batch"]) * int(values["tokens"])
    return tr("{n} steps of {tokens} tokens", n=values["steps"], tokens=tokens)


def _search(values: Mapping[str, str]) -> str:
    elements = float(values["rows"]) * float(values["columns"])
    return tr("{size} of each matrix", size=memory(elements * ELEMENT_BYTES[values["dtype"]]))


def _copy(values: Mapping[str, str]) -> str:
    return tr("{size} of buffers", size=memory(2 * 2**20 * float(values["mib"])))


def _rain(values: Mapping[str, str]) -> str:
    return tr("{n} texts by the model that is chosen in Settings", n=values["texts"])


def _attention(values: Mapping[str, str]) -> str:
    """Describe the number of shapes, the time they take, and what the largest computes."""
    grid, ways = shapes(values), directions(values.get("direction", "both"))
    largest = max(grid, key=lambda shape: shape.flops(ways[-1]))
    cells = len(grid) * len(ways)
    contenders = split(values.get("backends", values.get("backend", "")))
    shape = largest.flops(ways[-1])
    values_of = {"work": scaled(shape, "FLOP"), "size": memory(largest.held)}
    text = tr("{work} a call · {size} of tensors", **values_of)
    if cells > 1 and len(ways) > 1:
        text = tr("{n} shapes and directions, up to {cost}", n=cells, cost=text)
    elif cells > 1:
        text = tr("{n} shapes, up to {cost}", n=cells, cost=text)
    if _WITH_SCORES & set(contenders):
        text += " · " + tr("{size} of scores", size=memory(largest.scores))
    timed = len(contenders) + ("backends" in values)  # the first of several is timed twice
    seconds = float(values.get("seconds", 0)) * cells * timed
    if cells * len(contenders) > 1 and seconds:
        text += " · " + tr("at most {time} of timing", time=duration(seconds))
    return text


_ESTIMATES: dict[str, Callable[[Mapping[str, str]], str]] = {
    "gemm": _gemm, "precision": _precision, "linear_attention": _linear_attention,
    "distributed": _distributed, "train": _train, "search": _search, "copy": _copy, "rain": _rain,
}  # fmt: skip
"""What one call computes and allocates, by workload; all others are of attention."""
