"""The emulator itself: what it must refuse, and what it must let pass."""

from __future__ import annotations

import pytest
import torch

from tests.emulation import gluon as gl
from tests.emulation.machine import Deadlock, Defect, Machine, Race, current
from tests.emulation.memory import fence
from tests.emulation.values import Whole

SEEDS = range(6)
BF16 = torch.bfloat16


def launch(body, *args, grid=(1,), seed=0, resident=2):
    return gl.Kernel(body, lambda: Machine(seed, resident))[grid](*args, num_warps=4)


def barriers(count, n=1):
    made = gl.allocate_shared_memory(gl.int64, [n, 1], gl.BarrierLayout())
    for i in range(n):
        gl.mbarrier.init(made.index(i), count=count)
    return made


def room(*shape, dtype=BF16):
    memory = gl.allocate_shared_memory(dtype, list(shape), gl.Layout())
    return memory  # It is named after this variable.


def boxes(x, rows):
    return gl.TensorDescriptor.from_tensor(x, [rows, x.shape[1]], gl.Layout())


def loaded(desc, at, shared):
    """Load a box and wait for it."""
    full = barriers(1)
    gl.mbarrier.expect(full, desc.block_type.nbytes)
    gl.tma_load(desc, [at, 0], full, shared)
    gl.mbarrier.wait(full, 0)
    return shared


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_read_zeros_past_the_end_and_write_nothing_there(seed):
    x = torch.arange(1.0, 1 + 6 * 8).view(6, 8).to(BF16)
    y = torch.zeros(12, 8, dtype=BF16)

    def kernel(source, target):
        shared = loaded(source, 4, room(4, 8))
        gl.tma_store(target, [-1, 0], shared)
        gl.tma_store(target, [3, 0], shared)
        gl.tma.store_wait(0)

    launch(kernel, boxes(x, 4), boxes(y[:5], 4), seed=seed)
    expected = torch.zeros_like(y)
    expected[0], expected[3:5] = x[5], x[4:]
    assert torch.equal(y, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_that_nobody_waited_for_is_not_there(seed):
    def kernel(source):
        shared, full = room(4, 8), barriers(1)
        gl.mbarrier.expect(full, source.block_type.nbytes)
        gl.tma_load(source, [0, 0], full, shared)
        shared.load(None)

    with pytest.raises(Race, match=r"a load of memory\[0:4, 0:8\] while a load \(TMA\)"):
        launch(kernel, boxes(torch.zeros(4, 8, dtype=BF16), 4), seed=seed)


def test_fresh_shared_memory_is_nan():
    def kernel(out):
        gl.store(out + gl.arange(0, 4), room(4, dtype=torch.float32).load(None))

    out = torch.zeros(4)
    launch(kernel, out)
    assert out.isnan().all()


def product(kernel_end):
    """A product of ones, and what `kernel_end` does with it."""

    def kernel(source, out):
        a = loaded(source, 0, room(64, 16))
        result = gl.warpgroup_mma(
            a, a.permute((1, 0)), gl.zeros([64, 64], gl.float32), use_acc=False, is_async=True
        )
        kernel_end(a, result, out)

    out = torch.zeros(64 * 64)
    launch(kernel, boxes(torch.ones(64, 16, dtype=BF16), 64), out)
    return out


def test_a_product_is_there_once_it_was_waited_for():
    def end(a, result, out):
        result = gl.warpgroup_mma_wait(0, deps=(result,))
        gl.store(out + gl.arange(0, 64 * 64), result.reshape([64 * 64]))

    assert (product(end) == 16).all()


@pytest.mark.parametrize(
    ("end", "what"),
    [
        (lambda a, result, out: result + 1, "used before it was waited for"),
        (
            lambda a, result, out: gl.warpgroup_mma_wait(1, deps=(result,)) + 1,
            "used before it was waited for",
        ),
        (
            lambda a, result, out: a.store(gl.zeros([64, 16], BF16)),
            r"a store of .* while a product \(wgmma\)",
        ),
        (lambda a, result, out: None, "ended with 1 products"),
    ],
    ids=["used", "wait too short", "overwritten", "forgotten"],
)
def test_a_product_that_was_not_waited_for(end, what):
    with pytest.raises(Defect, match=what):
        product(end)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_race_is_found_in_every_order(seed):
    """One partition releases its buffer before it has read it; whether the other one is so fast
    does not matter."""

    def reader(shared, full, empty):
        gl.mbarrier.wait(full, 0)
        gl.mbarrier.arrive(empty, count=1)
        shared.load(None)

    def writer(shared, full, empty):
        shared.store(gl.zeros([8], gl.float32))
        gl.mbarrier.arrive(full, count=1)
        gl.mbarrier.wait(empty, 0)
        shared.store(gl.zeros([8], gl.float32))

    def kernel():
        args = room(8, dtype=torch.float32), barriers(1), barriers(1)
        gl.warp_specialize([(reader, args), (writer, args)], [4], [24])

    with pytest.raises(Race, match=r"of memory\[0:8\]"):
        launch(kernel, seed=seed)


@pytest.mark.parametrize("fenced_by", ["nobody", "the other", "itself"])
def test_the_copy_engine_sees_what_its_writer_has_fenced(fenced_by):
    y = torch.zeros(4, 8, dtype=BF16)

    def writer(shared, full, target):
        shared.store(gl.full([4, 8], 1.0, BF16))
        if fenced_by == "itself":
            fence()
        gl.mbarrier.arrive(full, count=1)

    def storer(shared, full, target):
        gl.mbarrier.wait(full, 0)
        if fenced_by == "the other":
            fence()
        gl.tma_store(target, [0, 0], shared)
        gl.tma.store_wait(0)

    def kernel(target):
        args = room(4, 8), barriers(1), target
        gl.warp_specialize([(writer, args), (storer, args)], [4], [24])

    if fenced_by == "itself":
        launch(kernel, boxes(y, 4))
        assert (y == 1).all()
    else:
        with pytest.raises(Race, match="without fence_async_shared"):
            launch(kernel, boxes(y, 4))


def test_a_store_reads_shared_memory_as_late_as_it_may():
    y = torch.zeros(4, 8, dtype=BF16)

    def kernel(target, wait):
        shared = room(4, 8)
        for value in (1.0, 2.0):
            if wait and value == 2:
                gl.tma.store_wait(0)
            shared.store(gl.full([4, 8], value, BF16))
            fence()
            gl.tma_store(target, [0, 0], shared)
        gl.tma.store_wait(0)

    with pytest.raises(Race, match=r"a store of .* while a store \(TMA\)"):
        launch(kernel, boxes(y, 4), 0)
    with pytest.raises(Race, match="two copies"):
        launch(kernel, boxes(y, 4), 1)


@pytest.mark.parametrize("end", ["store", "load"])
def test_a_cta_does_not_end_with_copies_under_way(end):
    def kernel(desc):
        shared = room(4, 8)
        if end == "load":
            full = barriers(1)
            gl.mbarrier.expect(full, desc.block_type.nbytes)
            gl.tma_load(desc, [0, 0], full, shared)
        else:
            gl.tma_store(desc, [0, 0], shared)

    with pytest.raises(Defect, match=f"ended with 1 {end}s"):
        for seed in SEEDS:
            launch(kernel, boxes(torch.zeros(4, 8, dtype=BF16), 4), seed=seed)


def test_a_deadlock_says_who_waits_for_what():
    def first(a, b):
        gl.mbarrier.wait(a.index(1), 0)
        gl.mbarrier.arrive(b, count=1)

    def second(a, b):
        gl.mbarrier.wait(b, 0)
        gl.mbarrier.arrive(a.index(1), count=1)

    def kernel():
        ready = barriers(1, 2)
        done = barriers(2)
        gl.warp_specialize([(first, (ready, done)), (second, (ready, done))], [4], [24])

    with pytest.raises(Deadlock) as found:
        launch(kernel, grid=(2,))
    said = str(found.value)
    assert (
        "CTA (1, 0, 0), first waits for the end of parity 0 of made[1] (phase 0, lacks 1 of 1"
        " arrivals and 0 bytes)" in said
    )
    assert (
        "second waits for the end of parity 0 of made[0] (phase 0, lacks 2 of 2 arrivals and 0"
        " bytes)" in said
    )


def test_parities():
    """The phase before the first counts as over; of two phases the one before last cannot be told
    from the next."""

    def kernel():
        bar = barriers(1)
        gl.mbarrier.wait(bar, 1)
        gl.mbarrier.arrive(bar, count=1)
        gl.mbarrier.wait(bar, 0)
        gl.mbarrier.arrive(bar, count=1)
        gl.mbarrier.wait(bar, 0)

    with pytest.raises(Deadlock, match="phase 2"):
        launch(kernel)


def test_what_is_wrong_by_itself_is_refused():
    def wrong(what, kernel, *args):
        with pytest.raises(Defect, match=what):
            launch(kernel, *args)

    x = torch.zeros(8)
    wrong("2 arrivals .* lacks 1", lambda: gl.mbarrier.arrive(barriers(1), count=2))
    wrong(
        "before it is initialised",
        lambda: gl.mbarrier.arrive(gl.allocate_shared_memory(gl.int64, [1, 1], gl.BarrierLayout())),
    )
    wrong("barrier 2 of 2", lambda: barriers(1, 2).index(2))
    wrong("elements 1 to 8 of memory that has 8", lambda p: gl.load(p + 1 + gl.arange(0, 8)), x)
    wrong("elements 1 to 8", lambda p: gl.store(p + 1 + gl.arange(0, 8), 0.0), x)
    wrong("does not fit 32 bits", lambda n: n * n, 1 << 16)
    wrong("ranks", lambda: gl.arange(0, 4) + gl.zeros([4, 4], gl.int32))
    wrong("a whole block in a condition", lambda: bool(gl.arange(0, 4) > 2))
    wrong("shared memory", lambda: room(114, 1024))
    wrong("is stored to", lambda: room(8).store(gl.zeros([8], gl.float32)))
    wrong("3 to 5 of", lambda: room(4).slice(3, 2))
    wrong(
        "no meaning is known",
        lambda: gl.inline_asm_elementwise("add", "=r", [], dtype=gl.int32, is_pure=True, pack=1),
    )
    wrong("no box fits", lambda desc: None, boxes(torch.zeros(4, 9)[:, :8], 4))
    wrong("partitions", lambda: gl.warp_specialize([(lambda: None, ())], [4], [24]))


def test_masked_places_are_not_touched():
    x = torch.arange(8.0)

    def kernel(p):
        at = gl.arange(0, 16)
        value = gl.load(p + at, mask=at < 8, other=-1.0)
        gl.store(p + (at - 8), value + 100, mask=(at >= 8) & (at < 10))

    launch(kernel, x)
    assert x.tolist() == [99.0, 99.0, 2, 3, 4, 5, 6, 7]


def test_whole_numbers_divide_as_in_c():
    assert (Whole(-7) // 2, Whole(-7) % 2, 7 // Whole(-2), 7 % Whole(-2)) == (-3, -1, -3, 1)
    assert (Whole(1 << 30).to(gl.int64) * 4, type(3 + Whole(4))) == (1 << 32, Whole)


def test_ctas_take_turns_and_a_seed_repeats_them():
    def order(seed):
        taken = []

        def kernel(counter):
            for _ in range(3):
                taken.append((gl.atomic_add(counter, 1, sem="relaxed"), gl.program_id(0)))

        counter = torch.zeros(1, dtype=torch.int32)
        launch(kernel, counter, grid=(4,), seed=seed, resident=3)
        assert sorted(n for n, _ in taken) == list(range(12)) and counter.item() == 12
        return [int(who) for _, who in taken]

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in SEEDS}) > 2


def test_a_compiled_kernel_keeps_its_compile_time_values():
    seen = []

    def kernel(n, SIZE: gl.constexpr):  # noqa: N803
        seen.append((n, SIZE, type(n) is Whole, type(SIZE) is Whole, current().cta.grid))

    compiled = launch(kernel, 1, 2)
    compiled[3, 1, 1](5, 7)
    assert seen == [(1, 2, True, False, (1, 1, 1))] + [(5, 2, True, False, (3, 1, 1))] * 3
