"""Prepare every contender of a shape of the zoo: `auto`, its backends by name, and peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from gpudeck.accel import learning
from gpudeck.accel.attention import BACKENDS, Problem, attention, choose, describe
from gpudeck.accel.attention.dispatch import refuse
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.passes import backward, forward, prepare
from gpudeck.accel.result import Direction
from gpudeck.accel.runtime.graphs import Captured
from tests.benchmarks.attention_draws import CUDA, Draw, draws
from tests.benchmarks.attention_peers import PeerCall, peers
from tests.benchmarks.attention_shapes import ModelShape

PEER_BACKENDS = ("flash", "cudnn", "fa4", "fa3", "efficient")
OWN = ("hopper", "triton")
JUDGED = ("auto", "learned")
Call = Callable[[], tuple[Tensor, ...]]
Contender = tuple[str, Callable[[], list[Call]]]
"""A name, and a function that returns its call for each set of tensors."""


class Runner:
    """Prepare every contender of a shape in one direction."""

    def __init__(
        self,
        shape: ModelShape,
        direction: Direction,
        skip: Sequence[str] = (),
    ) -> None:
        self.shape, self.direction, self.skip = shape, direction, skip
        learning("off")
        self.sets = draws(shape)
        first = self.sets[0]
        learned = shape.mask == "learned" and direction == "backward"
        if first.bias is not None and learned:
            first.bias.requires_grad_()
        self.rules = {
            "causal": shape.causal,
            "window": (shape.left, None),
            "softcap": shape.softcap,
        }
        with torch.set_grad_enabled(direction == "backward"):
            self.problem = describe(
                first.q, first.k, first.v, bias=first.bias, seqlens=first.ragged, **self.rules
            )  # fmt: skip
        self.chosen = choose(self.problem, "auto", direction)
        self._solved = [
            attention(x.q, x.k, x.v, bias=_plain(x.bias), seqlens=x.ragged, return_lse=True,
                      **self.rules)
            for x in (self.sets if direction == "backward" else ())
        ]  # fmt: skip

    def contenders(self) -> Iterator[Contender]:
        """Yield each contender but what is learned."""
        yield "auto", self.cold
        for name in (*OWN, *PEER_BACKENDS):
            if name not in self.skip and refuse(self.problem, name, self.direction) is None:
                yield name, partial(self._backend, name, BACKENDS[name].layout)
        for name, peer in peers(self.shape, self._plain_inputs(self.sets[0], "bhsd")):
            if name not in self.skip:
                yield name, partial(self._peer, peer)

    def cold(self) -> list[Call]:
        """Return the calls of `auto` by the shipped tables."""
        learning("off")
        return self._by_choice()

    def learned(self) -> list[Call]:
        """Let `auto` learn as in a program, by three calls, and return its calls from then on."""
        learning("once")
        x = self.sets[0]
        grad = self.direction == "backward"
        leaves = [t.detach().requires_grad_(grad) for t in (x.q, x.k, x.v)]
        for _ in range(3):
            with torch.set_grad_enabled(grad):
                bias = _plain(x.bias, self.direction)
                out = attention(*leaves, bias=bias, seqlens=x.ragged, **self.rules)
            if grad:
                out.backward(x.dout)
        return self._by_choice()

    def _by_choice(self) -> list[Call]:
        """Return the calls of `auto` as it chooses now."""
        self.chosen = choose(self.problem, "auto", self.direction)
        layout = BACKENDS[self.chosen.backend].layout
        if self.direction == "backward":
            return self._backend(self.chosen.backend, layout)
        return [
            partial(_user_call, x.laid_out(layout), _plain(x.bias), self.rules, self.shape.lengths)
            for x in self.sets
        ]

    def _backend(self, name: str, layout: str) -> list[Call]:
        inputs = [self._plain_inputs(x, layout) for x in self.sets]
        if self.direction == "backward":
            return [
                partial(_gradients, x.upstream(layout), given, self._out(i, layout),
                        self._lse(i), self.problem, name)
                for i, (x, given) in enumerate(zip(self.sets, inputs, strict=True))
            ]  # fmt: skip
        run = None
        if inputs[0].bias is None and inputs[0].ragged is None:
            run = prepare(inputs[0], self.problem, name)
        if run is not None:
            return [partial(run, x.q, x.k, x.v) for x in inputs]
        return [partial(forward, x, self.problem, name) for x in inputs]

    def _peer(self, peer: PeerCall) -> list[Call]:
        calls: list[Call] = []
        for x in self.sets:
            given = self._plain_inputs(x, "bhsd")
            if self.shape.lengths:
                given = given._replace(**{n: getattr(given, n).contiguous() for n in "qkv"})
            leaves = [t.detach().clone(memory_format=torch.preserve_format) for t in given[:3]]
            if given.bias is not None:
                leaves.append(given.bias.detach().clone())
            if self.direction == "forward":
                calls.append(partial(_tuple, peer, leaves))
            else:
                learned = self.shape.mask == "learned"
                wanted = leaves if learned else leaves[:3]
                for leaf in wanted:
                    leaf.requires_grad_()
                with torch.enable_grad():
                    out = peer(*leaves)
                up = x.upstream("bhsd")
                calls.append(partial(torch.autograd.grad, out, wanted, up, retain_graph=True))
        return calls

    def _plain_inputs(self, x: Draw, layout: str) -> Inputs:
        return x.inputs(layout)._replace(bias=_plain(x.inputs("bhsd").bias, self.direction))

    def _out(self, i: int, layout: str) -> Tensor:
        out = self._solved[i][0]
        if self.shape.lengths:
            return out.transpose(0, 1).unsqueeze(0)
        return out.contiguous() if layout == "bhsd" else out

    def _lse(self, i: int) -> Tensor:
        lse = self._solved[i][1]
        return lse.unsqueeze(0) if self.shape.lengths else lse


def _plain(bias: Tensor | None, direction: str = "forward") -> Tensor | None:
    return bias if bias is None or direction == "backward" else bias.detach()


def _user_call(
    x: Draw, bias: Tensor | None, rules: dict[str, object], lengths: tuple[int, ...]
) -> tuple[Tensor, ...]:
    out = attention(x.q, x.k, x.v, bias=bias, seqlens=x.ragged, **rules)  # type: ignore[call-overload]
    return (out.transpose(0, 1).unsqueeze(0) if lengths else out,)


def _tuple(peer: PeerCall, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (peer(*leaves),)


def _gradients(
    dout: Tensor, x: Inputs, out: Tensor, lse: Tensor, problem: Problem, name: str
) -> tuple[Tensor, ...]:
    return backward(dout, x, out, lse, problem, name)[:3]


def captured(calls: Sequence[Call], autograd: bool) -> Callable[[], object]:
    """Return a function that replays all calls as one CUDA graph.

    Autograd runs a backward pass on the stream of its forward pass: the caller makes that the
    current stream, and it is the one captured.
    """

    def run() -> None:
        for call in calls:
            call()

    if not autograd:
        return Captured(run, CUDA)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return partial(_replay, graph, calls)


def _replay(graph: torch.cuda.CUDAGraph, kept: Sequence[Call]) -> None:
    """Replay a graph whose kernels read the tensors of the calls, which are therefore kept."""
    graph.replay()
