"""The form of a workload: built from the catalog, checked while it is typed."""

from __future__ import annotations

from collections.abc import Mapping

from accel.workloads.catalog import Param, Workload
from app.models.format import memory, scaled
from app.models.requests import Submit

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_WHOLE_SCORES = ("math", "reference")  # these hold the score matrix; the others never do


class Form:
    """Values as typed, and what is wrong with each."""

    def __init__(self, workload: Workload, device_kind: str) -> None:
        self.workload = workload
        self.values = {p.name: p.default_for(device_kind) for p in workload.params}

    def set(self, name: str, value: str) -> None:
        self.values[name] = value.strip()

    def errors(self) -> dict[str, str]:
        """For each field that cannot be used: why. Empty: the form may be sent."""
        wrong = {p.name: message for p in self.workload.params if (message := _wrong(p, self.values[p.name]))}
        if self.workload.name == "attention" and not wrong:
            heads, kv_heads = int(self.values["heads"]), int(self.values["kv_heads"])
            if kv_heads and heads % kv_heads:
                wrong["kv_heads"] = f"{heads} heads cannot share {kv_heads}: it must divide them"
        return wrong

    def estimate(self) -> str:
        """What one call will compute and hold, in words; empty where the form is wrong."""
        if self.errors():
            return ""
        match self.workload.name:
            case "attention":
                return _attention(self.values)
            case "gemm":
                n, size = int(self.values["size"]), _BYTES[self.values["dtype"]]
                return f"{scaled(2.0 * n**3, 'FLOP')} a call · {memory(3.0 * n * n * size)} of matrices"
            case "copy":
                return f"{memory(2 * 2**20 * float(self.values['mib']))} of buffers"
            case _:
                return ""

    def submission(self) -> Submit:
        """The request that queues it. Raises ValueError where the form is wrong."""
        for message in self.errors().values():
            raise ValueError(message)
        w = self.workload
        return Submit(tuple(w.argv(self.values)), w.name, gpus=1, workload=w.name, params=dict(self.values))


def _wrong(param: Param, value: str) -> str:
    try:
        param.check(value)
    except ValueError as e:
        return str(e).removeprefix(f"{param.name} ").removesuffix(f"; got {value!r}")
    return ""


def _attention(values: Mapping[str, str]) -> str:
    """4 B H S² D operations, half of them if causal; memory of Q, K, V and the output, and of the scores where they are held."""
    batch, heads, seq, dim = (int(values[name]) for name in ("batch", "heads", "seq", "head_dim"))
    kv_heads, size = int(values["kv_heads"]) or heads, _BYTES[values["dtype"]]
    flops = 4.0 * batch * heads * seq * seq * dim * (0.5 if values["causal"] == "yes" else 1.0)
    held = 2.0 * batch * seq * dim * (heads + kv_heads) * size
    text = f"{scaled(flops, 'FLOP')} a call · {memory(held)} of tensors"
    if values["backend"] in _WHOLE_SCORES:
        text += f" · {memory(float(batch * heads * seq * seq * size))} of scores"
    return text
