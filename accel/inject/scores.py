"""Delay the computation of scores, so that softmax(scores) times values becomes one fused call.

`Scores` stands for a tensor that has not been computed. It accepts what programs do with scores,
and keeps a `Form` of it as long as the result is attention that we compute. Anything else computes
the tensor by the very operations of the program, in their order, and continues with that.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.inject import form as forms
from gpudeck.accel.inject import record
from gpudeck.accel.inject.equation import Equation, of_einsum, of_matmul, order
from gpudeck.accel.inject.form import Form
from gpudeck.accel.inject.fuse import Unfit, attend
from gpudeck.accel.inject.rules import IN_PLACE, LAYOUT, PRODUCTS, RULES
from gpudeck.accel.inject.speedup import LEAST
from gpudeck.accel.inject.vocabulary import NEW

Function = Callable[..., Any]
SMALL = {"cpu": 0, "cuda": LEAST["by hand"]}
"""The numbers of scores, by device, up to which they are computed as written: on an H200 that takes
less time than the host needs to delay them, and the memory is little."""
TOO_SMALL = "it is too small to gain"


class Scores:
    """Stand for a tensor of scores or weights that has not been computed."""

    def __init__(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], form: Form
    ) -> None:
        self.origin: tuple[Function, Sequence[Any], Mapping[str, Any]] = (function, args, kwargs)
        self.form = form
        self.value: Tensor | None = None
        self.aliased = False
        """Another object may share the elements, so that nothing is changed in place."""
        self.mode = _Mode()
        self.versions = _versions((*args, *kwargs.values()))

    @classmethod
    def __torch_function__(
        cls, function: Function, types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return apply(_operation(function), function, args, kwargs or {})

    def tensor(self) -> Tensor:
        """Compute the tensor as the program would have."""
        if self.value is None:
            function, args, kwargs = self.origin
            self.check()
            with self.mode.restored():
                self.value = function(*map(_computed, args), **_computed_all(kwargs))
        return self.value

    def check(self) -> None:
        """Raise RuntimeError if a tensor that the scores are made of was changed in place."""
        if torch.compiler.is_compiling() or self.value is not None:
            return
        _, args, kwargs = self.origin
        if self.versions != _versions((*args, *kwargs.values())):
            raise RuntimeError(
                "a tensor was changed in place after attention scores were made of it, which the"
                " injected code does not allow. To undo it: gpudeck inject undo"
            )
        for value in (*args, *kwargs.values()):
            if type(value) is Scores:
                value.check()

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.form.layout.shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or one size."""
        return self.shape if dim is None else self.shape[dim]

    @property
    def dtype(self) -> torch.dtype:
        return self.form.dtype

    @property
    def device(self) -> torch.device:
        return self.form.q.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("value", "form", "origin"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    def __setitem__(self, key: Any, value: Any) -> None:
        whole = isinstance(key, Tensor) and key.dtype == torch.bool and key.ndim == self.ndim
        if not (whole and _in_place(self, "masked_fill_", (self, key, value), {})):
            self.tensor()[key] = value

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return self.shape[0]


def _operation(function: Function) -> str:
    # torch.compile does not find functions that are written in Python in a dict
    if function is Tensor.__rsub__:
        return "__rsub__"
    if function is Tensor.__rdiv__:
        return "__rdiv__"
    return NAMES.get(function, "another operation")


class _Mode:
    """Keep what decides how operations compute: gradients and autocast."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.autocast = {kind: _autocast(kind) for kind in ("cpu", "cuda")}

    def same(self) -> bool:
        return self.grad == torch.is_grad_enabled() and all(
            _autocast(kind) == was for kind, was in self.autocast.items()
        )

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        if self.same():
            yield
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, dtype in self.autocast.items():
                if kind == "cpu" or torch.cuda.is_available():
                    on = dtype is not None
                    stack.enter_context(torch.autocast(kind, dtype, enabled=on))
            yield


def _autocast(kind: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _versions(values: Sequence[Any]) -> list[int]:
    """Return how often tensors were changed in place; inference tensors do not count it."""
    if torch.compiler.is_compiling():
        return []
    return [t._version for t in values if isinstance(t, Tensor) and not t.is_inference()]


def _computed(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_computed(v) for v in value)
    return value.tensor() if isinstance(value, Scores) else value


def _computed_all(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _computed(value) for name, value in kwargs.items()}


def product(function: Function, a: Any, b: Any, by: Equation | None, **extra: Any) -> Any:
    """Return the delayed product of queries and keys, or compute it if it cannot be delayed.

    Args:
        function: computes the product of `a` and `b`.
        by: the equation of the product, or None if it is of a kind that is not delayed.
        extra: `scale` and `bias` of torch.baddbmm.
    """
    if type(a) is Scores or type(b) is Scores or too_small(a, b, by):
        return function(a, b)
    if by is None or transformed(a) or transformed(b):
        return function(a, b)
    form = forms.product(a, b, by)
    if form is not None and "scale" in extra:
        form = forms.multiply(form, extra["scale"])
    if form is not None and extra.get("bias") is not None:
        form = forms.add(form, extra["bias"])
    if form is None:
        record.count("computed as written: this product is not one of queries and keys")
        return function(a, b)
    return Scores(function, (a, b), {}, form)


def too_small(a: Any, b: Any, by: Equation | None) -> bool:
    """Return True, and count it, if scores are better computed as written: few, not compiled."""
    if by is None or torch.compiler.is_compiling() or Scores in (type(a), type(b)):
        return False
    most = SMALL.get(a.device.type, 0)
    if not most:
        return False
    sizes: dict[str, int] = {}
    for axis, size in zip((*by.a, *by.b), (*a.shape, *b.shape), strict=True):
        sizes[axis] = max(size, sizes.get(axis, 0))
    if math.prod(sizes[axis] for axis in by.out) > most:
        return False
    record.count(f"computed as written: {TOO_SMALL}")
    return True


def transformed(t: Any) -> bool:
    """Return True for what our attention does not take: another class, or one of torch.func or JIT.

    A subclass of Tensor may give operations another meaning.
    """
    if torch.compiler.is_compiling():
        return not isinstance(t, Tensor)
    if type(t) is not Tensor and type(t) is not torch.nn.Parameter:
        return True
    functorch = torch._C._functorch
    return (
        torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or functorch.is_batchedtensor(t)
        or functorch.is_gradtrackingtensor(t)
    )


def apply(name: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Apply an operation of torch to arguments among which there are Scores."""
    if name in PRODUCTS:
        if function is Tensor.matmul and type(args[1]) is Scores and torch.compiler.is_compiling():
            # torch.compile exchanges the operands of @ if the first one is no tensor
            raise RuntimeError("compiled code must multiply scores by accel.inject.link.matmul")
        return _multiply(name, function, args, kwargs)
    if name in IN_PLACE:
        target = args[0]
        if type(target) is Scores and _in_place(target, name, args, kwargs):
            return target
    elif (rule := RULES.get(name)) is not None:
        changed = rule(*args, **kwargs)
        if isinstance(changed, Form):
            made = Scores(function, args, kwargs, changed)
            if name in LAYOUT:
                args[0].aliased = made.aliased = True
            return made
    record.count(f"computed as written: {name} was applied to the scores")
    return function(*_computed(tuple(args)), **_computed_all(kwargs))


def _in_place(target: Scores, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Change Scores in place; False if only their tensor can be changed."""
    if target.aliased or target.value is not None:
        return False
    changed = RULES[IN_PLACE[name]](*args, **kwargs)
    if not isinstance(changed, Form):
        return False
    before = Scores(*target.origin, target.form)
    before.mode, before.versions = target.mode, target.versions
    target.origin = (getattr(Tensor, name), (before, *args[1:]), kwargs)
    target.versions = _versions((*args[1:], *kwargs.values()))
    target.form = replace(changed, dtype=before.form.dtype)
    return True


def _multiply(name: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Multiply weights with values, in one fused call if that is possible."""
    operands, by = _equation(name, args, kwargs)
    try:
        if by is None:
            raise Unfit("the product of weights and values is of an unknown kind")
        out, causal = _attended(operands, by)
        weights = operands[0] if type(operands[0]) is Scores else operands[1]
    except Unfit as e:
        record.count(f"computed as written: {e}")
        return function(*_computed(tuple(args)), **_computed_all(kwargs))
    record.count_link(weights.form.q, weights.form.k, causal)
    return out


def _equation(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, Any], Equation | None]:
    if name == "einsum":
        text, *rest = args
        operands = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
        if len(operands) != 2 or not isinstance(text, str):
            return (None, None), None
        a, b = operands
        return (a, b), of_einsum(text, a.ndim, b.ndim)
    if len(args) != 2 or kwargs:
        return (None, None), None
    a, b = reversed(args) if name == "__rmatmul__" else args
    return (a, b), of_matmul(a.ndim, b.ndim)


def _attended(operands: tuple[Any, Any], by: Equation) -> tuple[Tensor, bool]:
    """Return the product, and whether it was computed as causal attention. Raises Unfit."""
    a, b = operands
    if (type(a) is Scores) == (type(b) is Scores):
        raise Unfit("two tensors of scores are multiplied")
    weights, of_weights = (a, by.a) if type(a) is Scores else (b, by.b)
    v, of_v = (b, by.b) if weights is a else (a, by.a)
    form = weights.form
    if weights.value is not None:
        raise Unfit("the weights are used elsewhere, too")
    weights.check()
    if not weights.mode.same():
        raise Unfit("gradients or autocast were switched within")
    key = next((n for n, axis in zip(of_weights, form.layout.axes, strict=True) if axis == "k"), "")
    query = [n for n, axis in zip(of_weights, form.layout.axes, strict=True) if axis == "q"]
    features = [axis for axis in of_v if axis not in of_weights]
    if not by.plain or by.summed != {key} or len(features) != 1 or not query or query[0] in of_v:
        raise Unfit("the values are not multiplied over the keys")
    values = forms.arrange(v, of_v, (*of_weights, *features))
    out, causal = attend(form, _values(form, values, of_weights.index(key)))
    out = out.unsqueeze(-2)
    kept = [axis for axis in of_weights if axis != key]
    out = form.layout.restored(out).squeeze(of_weights.index(key))
    # contiguous, as programs may view it
    return out.permute(order((*kept, *features), by.out)).contiguous(), causal


def _values(form: Form, values: Tensor, key: int) -> Tensor:
    """Bring values over the axes of the weights into [batch..., keys, features]."""
    shape = form.layout.shape
    fits = all(have in (1, want) for have, want in zip(values.shape, shape, strict=False))
    if not fits or values.shape[key] != shape[key]:
        raise Unfit("the values do not fit the weights")
    return form.layout.canonical(values).squeeze(-3)


def _method(name: str) -> Function:
    function = getattr(Tensor, name)

    def method(self: Scores, *args: Any, **kwargs: Any) -> Any:
        return apply(name, function, (self, *args), kwargs)

    method.__name__ = name
    return method


def _new(name: str) -> Function:
    def method(self: Scores, *args: Any, **kwargs: Any) -> Tensor:
        like = self.form.q.new_empty(0, dtype=self.dtype)
        made: Tensor = getattr(like, name)(*args, **kwargs)
        return made

    method.__name__ = name
    return method


for _name in NEW:
    setattr(Scores, _name, _new(_name))
_OTHERS = (
    "__getitem__", "__neg__", "__pos__", "__abs__", "__invert__", "__pow__", "__rpow__", "__mod__",
    "__floordiv__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__and__", "__or__",
    "__xor__", "__bool__", "__float__", "__int__", "__iter__", "__contains__", "__rsub__",
    "__rtruediv__",
)  # fmt: skip
"""Operators, which Python looks up in the class."""
NAMES: dict[Any, str] = {}
"""The names of torch's functions. Compiled code cannot ask a function for its name."""
for _name in (*RULES, *IN_PLACE, *PRODUCTS, *_OTHERS):
    for _home in (Tensor, torch, torch.nn.functional):
        if hasattr(_home, _name):
            NAMES[getattr(_home, _name)] = _name
    if hasattr(Tensor, _name):
        setattr(Scores, _name, _method(_name))
