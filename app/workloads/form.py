"""Check what is typed into the form of a workload, and estimate its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpudeck.accel.workloads.catalog import AUTO, Param, Workload, split
from gpudeck.accel.workloads.grid import directions, shapes
from gpudeck.app.format.values import duration, memory, scaled
from gpudeck.app.language.texts import tr, tr_count, tr_text
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
from gpudeck.scheduler.protocol.submissions import PendingTokens
from gpudeck.scheduler.verbs.submit import Submit

CHOSEN = "auto"
"""What stands in a field whose value is chosen by itself."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
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
        match self.workload.name:
            case "gemm":
                n, dtype = int(self.values["size"]), self.values["dtype"]
                # both factors in FP8, and their product in bfloat16
                matrices = memory(float(n * n) * (3 * _BYTES[dtype] if dtype in _BYTES else 4))
                work = scaled(2.0 * n**3, "FLOP")
                return tr("{work} a call · {size} of matrices", work=work, size=matrices)
            case "precision":
                rows, inputs, outputs = (
                    float(self.values[name]) for name in ("rows", "inputs", "outputs")
                )
                return tr("{work} a call", work=scaled(6.0 * rows * inputs * outputs, "FLOP"))
            case "linear_attention":
                sizes = ("batch", "tokens", "heads", "head_dim")
                elements = math.prod(float(self.values[name]) for name in sizes)
                size = _BYTES[self.values["dtype"]]
                amount = memory(elements * size)
                return tr("{size} of each of queries, keys and values", size=amount)
            case "distributed":
                whole = [float(self.values[name]) for name in ("seq", "seq", "heads", "head_dim")]
                share = 2.0 if self.values["causal"] == "yes" else 4.0
                return tr("{work} a call", work=scaled(share * math.prod(whole), "FLOP"))
            case "train":
                tokens = int(self.values["batch"]) * int(self.values["tokens"])
                return tr("{n} steps of {tokens} tokens", n=self.values["steps"], tokens=tokens)
            case "search":
                elements = float(self.values["rows"]) * float(self.values["columns"])
                matrix = memory(elements * _BYTES[self.values["dtype"]])
                return tr("{size} of each matrix", size=matrix)
            case "copy":
                size_of = memory(2 * 2**20 * float(self.values["mib"]))
                return tr("{size} of buffers", size=size_of)
            case "rain":
                texts = self.values["texts"]
                return tr("{n} texts by the model that is chosen in Settings", n=texts)
            case _ if (operation := self.values.get("operation", "attention")) != "attention":
                count = len(split(self.values["sizes"]))
                return tr_count(
                    "{operation} of {n} size, by everything that can compute it",
                    "{operation} of {n} sizes, by everything that can compute it",
                    count,
                    operation=operation,
                )
            case _:
                return _attention(self.values)

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
