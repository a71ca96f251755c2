"""Emulate the part of Gluon for Hopper, and of Triton, that the kernels use, on the CPU.

What hardware may do late is done as late as the waits allow: a load (TMA) leaves poison until it
lands, a product (wgmma) and a store (TMA) read shared memory when they are waited for. Layouts,
registers and instructions are not looked at: those the compiler checks.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.emulation.machine import Barrier, Defect, Machine, current, join
from tests.emulation.memory import Access, Shared
from tests.emulation.values import Block, Pointer, Whole, pair, raw

float32, float16, bfloat16 = torch.float32, torch.float16, torch.bfloat16
float8e4nv = torch.float8_e4m3fn
int64, int32, int16, int8 = torch.int64, torch.int32, torch.int16, torch.int8
static_range = range


def constexpr(x: Any) -> Any:
    return x


class Layout:
    """Any layout; none is looked at."""

    def __init__(self, *_: Any) -> None:
        pass

    @classmethod
    def get_default_for(cls, shape: list[int], dtype: torch.dtype) -> Layout:
        del shape, dtype
        return cls()


NVMMADistributedLayout = SliceLayout = DotOperandLayout = BlockedLayout = SwizzledSharedLayout = (
    NVMMASharedLayout
) = DistributedLinearLayout = Layout


class BarrierLayout(Layout):
    """The layout of a barrier."""


# Numbers and blocks


def program_id(dim: int) -> Whole:
    return Whole(current().cta.place[dim])


def num_programs(dim: int) -> Whole:
    return Whole(current().cta.grid[dim])


def zeros(shape: list[int], dtype: torch.dtype, layout: object = None) -> Block:
    return full(shape, 0, dtype, layout)


def full(shape: list[int], value: Any, dtype: torch.dtype, layout: object = None) -> Block:
    del layout
    return Block(torch.full(shape, value, dtype=dtype))


def arange(first: int, end: int, layout: object = None) -> Block:
    del layout
    return Block(torch.arange(first, end, dtype=torch.int32))


def expand_dims(x: Block, dim: int) -> Block:
    return Block(x.data.unsqueeze(dim))


def broadcast(a: Block, b: Block) -> tuple[Block, Block]:
    pair(a, b)
    x, y = torch.broadcast_tensors(a.data, b.data)  # type: ignore[no-untyped-call]
    return Block(x), Block(y)


def convert_layout(x: Block, layout: object, assert_trivial: bool = False) -> Block:
    del layout, assert_trivial
    return Block(x.data)


def exp(x: Block) -> Block:
    return Block(torch.exp(x.data))


def sqrt(x: Block) -> Block:
    return Block(torch.sqrt(x.data))


def exp2(x: Block) -> Block:
    return Block(torch.exp2(x.data))


def erf(x: Block) -> Block:
    return Block(torch.erf(x.data))


def max_contiguous(x: Any, counts: list[int]) -> Any:
    """A promise to the compiler, as the next two."""
    del counts
    return x


multiple_of = max_constancy = max_contiguous


def log2(x: Block) -> Block:
    return Block(torch.log2(x.data))


def split(x: Block) -> tuple[Block, Block]:
    low, high = x.data.unbind(-1)
    return Block(low), Block(high)


def join_pairs(low: Block, high: Block) -> Block:
    return Block(torch.stack((low.data, high.data), -1))


def _one_of_two(
    number: Callable[[Any, Any], Any], block: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any
) -> Any:
    if isinstance(a, Block) or isinstance(b, Block):
        x, y = (torch.as_tensor(t) for t in pair(a, b))
        return Block(block(x, y))
    return Whole(number(a, b), max(getattr(x, "bits", 32) for x in (a, b)))


def maximum(a: Any, b: Any) -> Any:
    """The greater one; of NaN and a number the number, as PTX's max."""
    return _one_of_two(
        max,
        lambda x, y: torch.fmax(x, y) if x.dtype.is_floating_point else torch.maximum(x, y),
        a,
        b,
    )


def minimum(a: Any, b: Any) -> Any:
    return _one_of_two(
        min,
        lambda x, y: torch.fmin(x, y) if x.dtype.is_floating_point else torch.minimum(x, y),
        a,
        b,
    )


def where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Block):
        return Block(torch.where(condition.data, raw(a), raw(b)))
    chosen = a if condition else b
    return Whole(chosen) if type(chosen) is int else chosen


def greatest(x: Block, dim: int) -> Any:
    """`gl.max`. NaN is passed over, as by PTX's max."""
    if not x.dtype.is_floating_point:
        most = x.data.amax(dim)
        return Block(most) if most.ndim else Whole(int(most))
    nan = x.data.isnan()
    return Block(x.data.masked_fill(nan, -torch.inf).amax(dim).masked_fill(nan.all(dim), torch.nan))


def total(x: Block, dim: int) -> Block:
    """`gl.sum`."""
    return Block(x.data.sum(dim))


# Global memory


def load(pointer: Pointer, mask: Any = None, other: Any = None, cache_modifier: str = "") -> Any:
    del cache_modifier
    return pointer.load(mask, other)


def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
    pointer.store(value, mask)


def atomic_add(pointer: Pointer, value: int, sem: str) -> Whole:
    assert sem == "relaxed"
    current().pause()
    return pointer.add(value)


def atomic_max(pointer: Pointer, value: int, sem: str) -> Whole:
    assert sem == "relaxed"
    current().pause()
    return pointer.raise_to(value)


# Instructions written out


def _widen_bf16(x: Block) -> Block:
    return Block((x.data.view(torch.int16).to(torch.int32) << 16).view(torch.float32))


def _widen_fp16(x: Block) -> Block:
    return Block(x.data.view(torch.float16).to(torch.float32))


def _packed(low: Block, high: Block, dtype: torch.dtype) -> Block:
    return Block(torch.stack((low.data, high.data), -1).to(dtype).view(torch.int32).squeeze(-1))


def _unpacked(x: Block) -> tuple[Block, Block]:
    return split(Block(x.data.unsqueeze(-1).view(torch.int16)))


def _reduce_fours(address: Block, x: Block) -> None:
    """A vector reduction of the four registers that a thread has of each 16 x 8 piece of an
    accumulator of wgmma, [64,N] in all."""
    current().pause()
    row, column = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None]
    first = address.data[row & ~8, column & ~1]
    if (first % 16).any():
        raise Defect("a vector of four floats must lie at a multiple of 16 bytes")
    at = first + 4 * ((row >> 3 & 1) * 2 + (column & 1))
    for memory in current().cta.machine.global_memory:
        begin = memory.data_ptr()
        if begin <= int(at.min()) and int(at.max()) < begin + 4 * len(memory):
            memory.index_add_(0, ((at - begin) // 4).flatten(), x.data.flatten())
            return
    raise Defect("added to memory that the kernel was not given")


def _exponentiated(*scores: Block) -> tuple[Block, Block]:
    """Powers of 2 of four scores as bytes of E4M3, and their sum."""
    powers = torch.exp2(torch.stack([x.data for x in scores], -1))
    packed = powers.clamp(max=448.0).to(float8e4nv).view(torch.int32).squeeze(-1)
    return Block(packed), Block(powers.sum(-1))


def _bytes(x: Block) -> Block:
    """The bytes of whole numbers that each come four times side by side."""
    fours = x.data.unflatten(-1, (-1, 4))
    if (fours != fours[..., :1]).any():
        raise Defect("four neighbours that are to share their bytes are not alike")
    return Block(fours[..., :1].contiguous().view(torch.int8).flatten(-2))


def _spread_numbers(words: Block, least: Block, one: int, less: Block, dtype: torch.dtype) -> Block:
    """Numbers 0 and 4 of words of four bits, put into pairs of `least`, times one, plus `less`."""
    put, by = (words.data & 0x000F000F) | raw(least), torch.tensor(one, dtype=torch.int32)
    halves = [t.unsqueeze(-1).view(dtype) for t in torch.broadcast_tensors(put, by, less.data)]
    return Block((halves[0] * halves[1] + halves[2]).view(torch.int32).squeeze(-1))


def _from_e4m3(words: Block) -> tuple[Block, Block]:
    """Four numbers of E4M3 in each word as two pairs of fp16 in int32."""
    four = words.data.unsqueeze(-1).view(float8e4nv).to(float16)
    return split(Block(four.view(torch.int32)))


def _from_int8(words: Block) -> tuple[Block, Block]:
    """Four numbers of int8 in each word as two pairs of fp16 in int32."""
    four = words.data.unsqueeze(-1).view(torch.int8).to(float16)
    return split(Block(four.view(torch.int32)))


_E4M3 = (
    "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.rn.f16x2.e4m3x2 $0, l; cvt.rn.f16x2.e4m3x2 $1, h; }"
)
_INT8 = (
    "{ .reg .b32 w, l, h, c; xor.b32 w, $2, 0x80808080; mov.b32 c, 0x64806480;"
    " prmt.b32 l, w, 0x64646464, 0x4140; prmt.b32 h, w, 0x64646464, 0x4342;"
    " sub.f16x2 $0, l, c; sub.f16x2 $1, h, c; }"
)
_SPREAD = "{ .reg .b32 v; lop3.b32 v, $1, 0x000f000f, $2, 0xea; fma.rn.%s $0, v, $3, $4; }"
_FP16_PAIR = (
    "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }"
)
INSTRUCTIONS: dict[tuple[str, int], Callable[..., Any]] = {
    ("mov.b32 $0, $1;", 4): _bytes,
    ("mov.b32 $0, $1;", 1): lambda x: Block(x.data.clone()),
    ("rcp.approx.ftz.f32 $0, $1;", 1): lambda x: Block(1.0 / x.data),
    ("mov.b32 {$0, $1}, $2;", 1): _unpacked,
    ("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", 2): _widen_bf16,
    (_FP16_PAIR, 2): _widen_fp16,
    (_E4M3, 1): _from_e4m3,
    (_INT8, 1): _from_int8,
    (_SPREAD % "bf16x2", 1): partial(_spread_numbers, dtype=bfloat16),
    (_SPREAD % "f16x2", 1): partial(_spread_numbers, dtype=float16),
    ("cvt.rn.bf16x2.f32 $0, $2, $1;", 1): partial(_packed, dtype=bfloat16),
    ("cvt.rn.f16x2.f32 $0, $2, $1;", 1): partial(_packed, dtype=float16),
    ("red.relaxed.gpu.global.add.v4.f32 [$1], {$5, $6, $7, $8}; mov.u32 $0, 0;", 4): _reduce_fours,
}


def inline_asm_elementwise(
    asm: str, constraints: str, args: list[Block], *, dtype: Any, is_pure: bool, pack: int
) -> Any:
    """By meaning: only what `INSTRUCTIONS` knows."""
    del constraints, dtype, is_pure
    if "cvt.rn.satfinite.e4m3x2.f32" in asm:
        return _exponentiated(*args)
    if (asm, pack) not in INSTRUCTIONS:
        raise Defect(f"no meaning is known of {asm!r}, {pack} at a time")
    return INSTRUCTIONS[asm, pack](*args)


# Shared memory and barriers


class Barriers:
    """Barriers in shared memory; as one where there is one."""

    def __init__(self, every: list[Barrier]) -> None:
        self.every = every
        self.shape = [len(every), 1]

    def index(self, i: int) -> Barriers:
        if not 0 <= i < len(self.every):
            raise Defect(f"barrier {i} of {len(self.every)}: {self.every[0].name}")
        return Barriers([self.every[i]])

    @property
    def one(self) -> Barrier:
        (barrier,) = self.every
        return barrier


def allocate_shared_memory(
    dtype: torch.dtype, shape: list[int], layout: Layout
) -> Shared | Barriers:
    """Named as the variable on whose line it is called."""
    caller = sys._getframe(1)
    name = linecache.getline(caller.f_code.co_filename, caller.f_lineno).split("=")[0].strip()
    if isinstance(layout, BarrierLayout):
        barriers = Barriers([Barrier(f"{name}[{i}]") for i in range(shape[0])])
        current().cta.allocate(barriers, 8 * shape[0])
        return barriers
    return Shared.allocate(name, dtype, shape)


def warp_specialize(
    parts: list[tuple[Callable[..., None], tuple[Any, ...]]], warps: list[int], registers: list[int]
) -> None:
    """All partitions at once: the first on the kernel's own warps, the others on `warps`."""
    if not len(parts) - 1 == len(warps) == len(registers):
        raise Defect(
            f"{len(parts)} partitions, {len(warps)} numbers of warps and {len(registers)} of"
            " registers beside the first"
        )
    names = [part.__name__ for part, _ in parts]
    labels = [f"{name}[{i}]" if names.count(name) > 1 else name for i, name in enumerate(names)]
    current().cta.part(
        (label, partial(part, *args)) for label, (part, args) in zip(labels, parts, strict=True)
    )


def assume(given: Any) -> None:
    """What the compiler may rely on must be so."""
    if not given:
        raise Defect("what the compiler was told to assume is not so")


def _init(barriers: Barriers, count: int) -> None:
    barriers.one.count = barriers.one.pending = count


def _expect(barriers: Barriers, count: int) -> None:
    current().pause()
    barriers.one.bytes += count
    barriers.one.arrive(1, current().release())


def _arrive(barriers: Barriers, *, count: int = 1, pred: Any = True) -> None:
    if pred:
        barriers.one.arrive(count, current().release())
        current().pause()


def _wait(barriers: Barriers, phase: int) -> None:
    if phase not in (0, 1):
        raise Defect(f"parity {phase}")
    task, barrier = current(), barriers.one
    task.pause(lambda: barrier.passed(phase), _Waiting(barrier, phase))
    join(task.clock, barrier.known)


class _Waiting(str):
    """Says how the barrier stands when somebody asks."""

    barrier: Barrier
    phase: int

    def __new__(cls, barrier: Barrier, phase: int) -> _Waiting:
        self = super().__new__(cls)
        self.barrier, self.phase = barrier, phase
        return self

    def __format__(self, spec: str) -> str:
        return f"the end of parity {self.phase} of {self.barrier}"


mbarrier = SimpleNamespace(
    MBarrierLayout=BarrierLayout, init=_init, expect=_expect, arrive=_arrive, wait=_wait
)


# The copy engine (TMA)


class TensorDescriptor:
    """Boxes of a strided tensor, as triton.experimental.gluon.nvidia.hopper has them."""

    base: Tensor
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    layout: Layout

    @classmethod
    def from_tensor(cls, x: Tensor, block_shape: list[int], layout: Layout) -> TensorDescriptor:
        self = cls()
        self.__dict__.update(
            base=x,
            shape=list(x.shape),
            strides=list(x.stride()),
            block_shape=block_shape,
            layout=layout,
        )
        return self

    @property
    def dtype(self) -> torch.dtype:
        return self.base.dtype

    @property
    def block_type(self) -> SimpleNamespace:
        return SimpleNamespace(
            nbytes=torch.Size(self.block_shape).numel() * self.base.element_size()
        )

    def check(self) -> None:
        """Raise an error for what cuTensorMapEncodeTiled refuses."""
        size = self.base.element_size()
        if (
            self.base.data_ptr() % 16
            or any(s * size % 16 or not 0 <= s * size < 1 << 40 for s in self.strides[:-1])
            or self.strides[-1] != 1
        ):
            raise Defect(f"no box fits strides of {self.strides}")
        if any(not 1 <= n <= 256 for n in self.block_shape) or any(
            not 1 <= n <= 1 << 32 for n in self.shape
        ):
            raise Defect(f"boxes of {self.block_shape} of {self.shape}")

    def inside(self, at: Iterable[int]) -> tuple[Tensor, tuple[slice, ...]]:
        """The elements of the box at these coordinates that the shape has, and where in the box
        they lie. Addresses have 64 bits."""
        at = [int(x) for x in at]
        if len(at) != len(self.shape):
            raise Defect(f"{len(at)} coordinates of {len(self.shape)} dimensions")
        low = [max(0, -x) for x in at]
        sizes = [
            max(0, min(box, n - x) - first)
            for box, n, x, first in zip(self.block_shape, self.shape, at, low, strict=True)
        ]
        box = tuple(slice(first, first + size) for first, size in zip(low, sizes, strict=True))
        if 0 in sizes:
            return self.base.new_empty(sizes), box
        size = self.base.element_size()
        away = (
            sum(
                (x + first) * stride for x, first, stride in zip(at, low, self.strides, strict=True)
            )
            * size
        )
        away = (away + (1 << 63)) % (1 << 64) - (1 << 63)
        first = self.base.storage_offset() + away // size
        last = first + sum((n - 1) * stride for n, stride in zip(sizes, self.strides, strict=True))
        if not 0 <= first <= last < self.base.untyped_storage().nbytes() // size:
            raise Defect(f"the box at {at} reaches outside of the memory of its tensor")
        return torch.as_strided(self.base, sizes, self.strides, first), box


def tma_load(
    descriptor: TensorDescriptor, at: list[int], barriers: Barriers, shared: Shared
) -> None:
    """Copy a box into shared memory, some time; zeros from outside of the tensor."""
    if (
        descriptor.block_type.nbytes != shared.data.numel() * shared.data.element_size()
        or descriptor.dtype != shared.dtype
    ):
        raise Defect(
            f"a box of {descriptor.block_shape} does not fill {shared.owner.place(shared.box)}"
        )
    found, where = descriptor.inside(at)
    barrier, cta = barriers.one, current().cta
    access = shared.begin("a load (TMA)", writes=True)
    began = current().release()

    def land() -> None:
        value = torch.zeros(descriptor.block_shape, dtype=descriptor.dtype)
        value[where] = found
        barrier.landed(descriptor.block_type.nbytes, shared.land(access, value, began))

    cta.loads.append(land)
    current().pause()


def tma_store(descriptor: TensorDescriptor, at: list[int], shared: Shared) -> None:
    """Copy shared memory to a box as late as `tma.store_wait` allows; what lies outside of the
    tensor is not written."""
    target, where = descriptor.inside(at)
    access = shared.begin("a store (TMA)", writes=False)

    def write() -> None:
        current().cta.machine.written(target)
        target.copy_(shared.data.reshape(descriptor.block_shape)[where])
        shared.end(access)

    current().stores.append(write)
    current().pause()


def _store_wait(pendings: int) -> None:
    current().pause()
    while len(current().stores) > pendings:
        current().stores.pop(0)()


tma = SimpleNamespace(async_load=tma_load, async_store=tma_store, store_wait=_store_wait)


# Tensor cores


class Product:
    """A wgmma in flight."""

    def __init__(self, a: Any, b: Shared, acc: Block, use_acc: bool) -> None:
        self.a, self.b, self.acc, self.use_acc = a, b, acc, use_acc
        self.result = Block(None)
        self.reads: list[tuple[Shared, Access]] = [
            (x, x.begin("a product (wgmma)", writes=False)) for x in (a, b) if isinstance(x, Shared)
        ]

    def finish(self) -> None:
        a, b = self.a.data, self.b.data
        if a.dtype != b.dtype:
            raise Defect(f"{a.dtype} times {b.dtype}")
        result = a.float() @ b.float()
        if result.shape != self.acc.data.shape:
            raise Defect(f"{list(result.shape)} is added to {self.acc.shape}")
        self.result.arrived = result + self.acc.data if self.use_acc else result
        for shared, access in self.reads:
            shared.end(access)


def warpgroup_mma(
    a: Any, b: Shared, acc: Block, *, use_acc: bool = True, is_async: bool = False
) -> Block:
    """acc + a b, or a b, in float32, once `warpgroup_mma_wait` has waited for it."""
    product = Product(a, b, acc, use_acc)
    current().products.append(product)
    current().pause()
    if not is_async:
        warpgroup_mma_wait(0, deps=(product.result,))
    return product.result


def warpgroup_mma_wait(pendings: int, deps: tuple[Block, ...]) -> Any:
    """Wait until no more than `pendings` products are in flight."""
    current().pause()
    while len(current().products) > pendings:
        current().products.pop(0).finish()
    # the next product may take what is still in flight as its sums, and nothing else may use it
    results = tuple(x if x.arrived is None else Block(x.data) for x in deps)
    return results[0] if len(results) == 1 else results


def mma_v2(a: Block, b: Block, acc: Block) -> Block:
    """acc + a b in float32, at once."""
    if a.dtype != b.dtype:
        raise Defect(f"{a.dtype} times {b.dtype}")
    return Block(acc.data + a.data.float() @ b.data.float())


# Launching


class Kernel:
    """A function of a kernel: called by another one, or launched as kernel[grid](...)."""

    def __init__(self, body: Callable[..., Any], machine: Callable[[], Machine]) -> None:
        self.body, self.machine, self.__name__ = body, machine, body.__name__
        self.names = self.arg_names = list(inspect.signature(body).parameters)
        self.constants = {
            name
            for name, p in inspect.signature(body).parameters.items()
            if str(p.annotation).endswith("constexpr")
        }

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.body(*args, **named)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
        return partial(self._launch, grid)

    def _launch(
        self,
        grid: tuple[int, ...],
        *args: Any,
        num_warps: int,
        maxnreg: int = 255,
        num_stages: int = 1,
        enable_fp_fusion: bool = True,
        launch_pdl: int = 0,
        **named: Any,
    ) -> Compiled:
        del num_warps, maxnreg, num_stages, enable_fp_fusion, launch_pdl
        given = inspect.signature(self.body).bind(*args, **named).arguments
        compiled = Compiled(
            self,
            {
                name: value
                for name, value in given.items()
                if name in self.constants or value is None
            },
        )
        compiled[grid](*(given[name] for name in self.names))
        return compiled


class Compiled:
    """A kernel with its compile-time values, launched as compiled[grid](...), which leaves those
    that are passed unread."""

    def __init__(self, kernel: Kernel, constants: dict[str, Any]) -> None:
        self.kernel, self.constants = kernel, constants

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *args: Any) -> None:
        machine = self.kernel.machine()
        values = {
            name: self.constants[name] if name in self.constants else argument(value)
            for name, value in zip(self.kernel.names, args, strict=True)
        }
        machine.global_memory = [
            value.memory for value in values.values() if isinstance(value, Pointer)
        ]
        machine.run((*grid, *[1] * (3 - len(grid))), partial(self.kernel.body, **values))


def argument(value: Any) -> Any:
    """Return a run-time argument as the kernel receives it."""
    if isinstance(value, Tensor):
        return Pointer.to_first(value)
    if isinstance(value, TensorDescriptor):
        value.check()
    return Whole(value) if isinstance(value, int) else value
