"""Defects planted in copies of the Hopper kernels' source: the emulation must find each of them, or
its word is worth nothing.

A change whose place is gone fails with ValueError: the kernel was rewritten, and the defect has to
be planted anew.
"""

from __future__ import annotations

import pytest

from tests.emulation.checks import (
    CAUSAL,
    RULES,
    VARIANTS,
    check_backward,
    check_forward,
    check_ragged_forward,
    claiming,
    tensors,
    with_atomics,
)
from tests.emulation.hopper import Hopper

EVERY = RULES | VARIANTS
ORDERS = 2
"""After so many orders of events a defect must have been found."""

FORWARD = {
    "scores not waited for": (
        "s = warpgroup_mma_wait(1, deps=(s,))\n    release_tile",
        "release_tile",
    ),
    "keys released before their product": (
        "    s = warpgroup_mma_wait(1, deps=(s,))\n    release_tile(k_empty, step)\n",
        "    release_tile(k_empty, step)\n    s = warpgroup_mma_wait(1, deps=(s,))\n",
    ),
    "keys never released": ("release_tile(k_empty, step)", "pass"),
    "keys of the next step released": (
        "release_tile(k_empty, step)",
        "release_tile(k_empty, step + 1)",
    ),
    "keys not waited for": ("await_tile(k_full, step)", "pass"),
    "too few bytes expected": (
        "expect_tile(full, empty, step, desc.block_type.nbytes)",
        "expect_tile(full, empty, step, desc.block_type.nbytes // 2)",
    ),
    "values of the wrong stage": (
        "accs = _add(p, v_smem.index(before % STAGES), accs,",
        "accs = _add(p, v_smem.index(k_slot), accs,",
    ),
    "values released a step early": (
        "release_tile(v_empty, step + i - 1)",
        "release_tile(v_empty, step + i)",
    ),
    "output scaled before it was waited for": (
        ("        accs = _added(accs, EV)\n        release_tile(v_empty, step + i - 1)"),
        "        release_tile(v_empty, step + i - 1)",
    ),
    "nobody's turn": ("pass_turn(turn, CID)", "pass"),
    "claims overwritten before they were taken": (
        "await_slot(claim_empty, served)",
        "pass",
    ),
    "claim taken before it is published": (
        "await_tile(claim_full, served)",
        "pass",
    ),
    "queries overwritten": (
        "expect_tile(q_full, q_empty, part, q_desc.block_type.nbytes)",
        "expect_tile(q_full, q_full, part, q_desc.block_type.nbytes)",
    ),
    "queries released twice": (
        "        state = (_empty(D, EV)",
        "        release_tile(q_empty, q_part)\n        state = (_empty(D, EV)",
    ),
    "a tile claimed twice": ("return gl.num_programs(0) + t", "return gl.num_programs(0) - 1 + t"),
    "a tile never claimed": ("return gl.num_programs(0) + t", "return gl.num_programs(0) + 1 + t"),
    "no fence before the output is stored": ("    fence_async_shared()\n", ""),
    "output overwritten while it is stored": (
        "        tma.store_wait(0)\n        box = o_smem.index(CID)",
        "        box = o_smem.index(CID)",
    ),
    "last store not waited for": (
        "  # fmt: skip\n        tma.store_wait(0)\n\n\n_NUMBERS",
        "  # fmt: skip\n\n\n_NUMBERS",
    ),
    "one room for two outputs, without turns": (
        "await_turn(o_turn, stored, CID)",
        "pass",
    ),
    "no mask past the last key": ("    end = seq_k - block * BN\n", "    end = BN\n"),
    "causal mask one key too far": (
        "end = gl.minimum(end, rows + right + 1)",
        "end = gl.minimum(end, rows + right + 2)",
    ),
    "ALiBi: rows' part of the maximum forgotten": (
        "return weights, m - tilt, l, alpha",
        "return weights, m, l, alpha",
    ),
    "ALiBi: the first head's slope for all": (
        "gl.load(slopes_ptr + sequence * slopes_batch + head)",
        "gl.load(slopes_ptr + sequence * slopes_batch)",
    ),
    "the first head's sink for all": ("gl.load(sinks + head)", "gl.load(sinks)"),
    "the sink not in the sum": (" + gl.exp2(sink - base)", ""),
    "the sink's maximum forgotten in the output": ("mean = mean * shrink", "pass"),
    "last columns: of the first stage's values": (
        "rest[2].index(slot), accs[1]",
        "rest[2].index(0), accs[1]",
    ),
    "last columns: not scaled": (
        "return acc, accs[1] * gl.expand_dims(gl.convert_layout(factor, at_last), 1)",
        "return acc, accs[1]",
    ),
    "last columns: scores not waited for": ("warpgroup_mma_wait(2, deps=(s,))", "s"),
    "last columns: too few bytes of queries expected": (
        "q_desc.block_type.nbytes + q_rest[0].block_type.nbytes",
        "q_desc.block_type.nbytes",
    ),
    "last columns: those of another consumer stored": (
        "rest[1].index(CID if O_SLOTS > 1 else 0).store",
        "rest[1].index(0).store",
    ),
    "bias: of another head": (" + head.to(gl.int64) * head_stride", ""),
    "bias: of another sequence": ("sequence.to(gl.int64) * batch_stride", "head.to(gl.int64) * 0"),
    "bias: of another consumer's rows": (
        "biases_at = _biases_of(added, sequence, head, row,",
        "biases_at = _biases_of(added, sequence, head, row - CID * ROWS,",
    ),
    "bias: of the block before": (
        "_load_biases(biases_at, block - i,",
        "_load_biases(biases_at, block - i + 1,",
    ),
    "bias: in base e": ("widen(biases) * BASE_2", "widen(biases)"),
    "mask: turned round": ("gl.where(biases != 0, s,", "gl.where(biases == 0, s,"),
    "ALiBi: in base e": ("slopes_batch + head) * BASE_2", "slopes_batch + head)"),
    "no mask at the window's left edge": (
        "seen = seen & (cols >= rows - left)",
        "seen = cols < end",
    ),
    "lse of rows past the end": ("mask=rows < seq_q)", "mask=rows < seq_q + 1)"),
    "key head of another group": ("kv_head = head // kv_group", "kv_head = head % kv_group"),
    "rounds: heads past the last": ("gl.minimum(group, all_heads - first)", "group"),
    "rounds: the heads of the first round again": ("head = first + place % t", "head = place % t"),
    "rounds: a smaller last round in rows of a whole one": (
        "row_tiles - 1 - place // together",
        "row_tiles - 1 - place // group",
    ),
    "ragged: one head too many skipped": ("claims, t + alike -", "claims, t + alike + 1 -"),
    "ragged: heads of the next sequence skipped": (
        "gl.minimum(heads - head, together - place % together)",
        "together - place % together",
    ),
}
"""Of forward.py: what is replaced by what."""

BLOCKS = {
    "a tile released twice": (
        "ring.py",
        "mbarrier.arrive(_of(empty, step)[0], count=1",
        "mbarrier.arrive(_of(empty, step)[0], count=2",
    ),
    "wrong parity of a tile": (
        "ring.py",
        "(step // SLOTS) & 1",
        "step & 1",
    ),
    "producer does not wait for room": (
        "ring.py",
        "mbarrier.wait(bar, parity ^ 1)",
        "pass",
    ),
    "producer waits for the other parity": (
        "ring.py",
        "mbarrier.wait(bar, parity ^ 1)",
        "mbarrier.wait(bar, parity)",
    ),
    "rows that see nothing are NaN": (
        "warpgroup.py",
        'gl.where(m == -float("inf"), 0.0, m)',
        "m",
    ),
    "sums not rescaled": (
        "warpgroup.py",
        "l * shrink + gl.sum(weights, 1)",
        "l + gl.sum(weights, 1)",
    ),
    "halves of a pair swapped": (
        "warpgroup.py",
        "[low, high], dtype=gl.int32",
        "[high, low], dtype=gl.int32",
    ),
}
"""Of the blocks of which the forward kernel is built: in which file what is replaced by what."""

BACKWARD = {
    "keys: queries released before their product": (
        "backward_keys.py",
        ("    dk, dv = warpgroup_mma_wait(0, deps=(dk, dv))\n    release_tile(q_empty, step)\n"),
        ("    release_tile(q_empty, step)\n    dk, dv = warpgroup_mma_wait(0, deps=(dk, dv))\n"),
    ),
    "keys: queries never released": (
        "backward_keys.py",
        "    release_tile(q_empty, step)\n",
        "",
    ),
    "keys: the other's dS not waited for": (
        "backward_keys.py",
        "await_tile(ds_full, step)",
        "pass",
    ),
    "keys: dS of both warpgroups in one place": (
        "backward_keys.py",
        "ds_smem.index(step % 2 * 2 + W).store(ds)",
        "ds_smem.index(step % 2 * 2).store(ds)",
    ),
    "keys: dS without a fence": (
        "backward_keys.py",
        "    fence_async_shared()\n    publish_tile(ds_full",
        "    publish_tile(ds_full",
    ),
    "keys: dS of two steps in one place": (
        "backward_keys.py",
        "ds_smem.index(step % 2 * 2 + W).store(ds)",
        "ds_smem.index(W).store(ds)",
    ),
    "keys: keys overwritten while the other reads them": (
        "backward_keys.py",
        "        await_tile(done, 0)\n",
        "",
    ),
    "keys: dq of the wrong step": (
        "backward_keys.py",
        "add_dq(step - 1, part, problem",
        "add_dq(step, part, problem",
    ),
    "keys: the last step's dq forgotten": (
        "backward_keys.py",
        "            add_dq(steps - 1, part, problem, dq, W, BM, D, GROUP)\n",
        "",
    ),
    "keys: dk not scaled": (
        "backward_keys.py",
        "k_smem.index(W).store((dk * scale).to(kind))",
        "k_smem.index(W).store(dk.to(kind))",
    ),
    "keys: loads begin at the wrong tile": (
        "backward_keys.py",
        "q_desc,\n            sequence,\n            q_head,\n            tile * BM",
        "q_desc,\n            sequence,\n            q_head,\n            step * BM",
    ),
    "wide: P read before it is there": (
        "backward_wide.py",
        "        await_tile(p_full, step)\n",
        "",
    ),
    "wide: dv stored over v that the other reads": (
        "backward_wide.py",
        "        await_slot(p_empty, steps + 1)\n",
        "        pass\n",
    ),
    "wide: dout released before its product": (
        "backward_wide.py",
        ("        dv = warpgroup_mma_wait(0, deps=(dv,))\n        release_tile(do_empty, step)\n"),
        ("        release_tile(do_empty, step)\n        dv = warpgroup_mma_wait(0, deps=(dv,))\n"),
    ),
    "wide: no fence before dk is stored": (
        "backward_wide.py",
        "    k_smem.store((dk * scale).to(kind))\n    fence_async_shared()\n",
        "    k_smem.store((dk * scale).to(kind))\n",
    ),
    "queries: keys released before their product": (
        "backward_queries.py",
        ("        dq = warpgroup_mma_wait(0, deps=(dq,))\n        release_tile(k_empty, step)\n"),
        ("        release_tile(k_empty, step)\n        dq = warpgroup_mma_wait(0, deps=(dq,))\n"),
    ),
    "queries: values of the next step awaited": (
        "backward_queries.py",
        "await_tile(v_full, step)",
        "await_tile(v_full, step + 1)",
    ),
    "queries: last store not waited for": ("backward_queries.py", "    tma.store_wait(0)\n", ""),
    "tiles: mask one key too far": (
        "backward_tiles.py",
        "key <= query + (shift + right)",
        "key <= query + (shift + right + 1)",
    ),
    "tiles: uncut tiles taken for whole ones": (
        "backward_tiles.py",
        "query + shift + right < key + BN - 1",
        "query + shift + right < key",
    ),
    "tiles: a tile too few": (
        "backward_tiles.py",
        "(end + BM - 1) // BM - first, 0)",
        "end // BM - first, 0)",
    ),
    "tiles: dq's fragments in another order": (
        "backward_tiles.py",
        "(row & 7) * 16\n",
        "(row & 7) * 8\n",
    ),
    "tiles: cap without its derivative": ("backward_tiles.py", "1.0 - t * t", "1.0"),
    "rows: delta of the wrong sign": (
        "backward_rows.py",
        "tl.store(rows + BM + r, -delta)",
        "tl.store(rows + BM + r, delta)",
    ),
    "rows: rows that see nothing not marked": (
        "backward_rows.py",
        'value = tl.where(value == -float("inf"), float("inf"), value)',
        "pass",
    ),
    "rows: the gradient of lse of the wrong sign": ("backward_rows.py", "delta -=", "delta +="),
    "rows: ALiBi within a tile forgotten": (
        "backward_rows.py",
        "value += tl.load(slopes + head) * r.to(tl.float32)",
        "pass",
    ),
    "keys: the slope of the group's first head for all": (
        "backward_keys.py",
        "slope_of(slopes, member, ALIBI)",
        "slope_of(slopes, 0, ALIBI)",
    ),
    "wide: the slope of the group's first head for all": (
        "backward_wide.py",
        "slope_of(slopes, member, ALIBI)",
        "slope_of(slopes, 0, ALIBI)",
    ),
    "queries: ALiBi by the tile of the first row": (
        "backward_queries.py",
        "row // TILE, seq_q",
        "query // TILE, seq_q",
    ),
    "parts: keys of another head": ("backward_keys.py", "head // SPLIT", "head % SPLIT"),
    "wide: parts: keys of another head": ("backward_wide.py", "head // SPLIT", "head % SPLIT"),
    "parts: rows of other query heads": (
        "backward_keys.py",
        "first_tile(start_q, sequence, head * GROUP,",
        "first_tile(start_q, sequence, head // SPLIT * GROUP,",
    ),
    "claimed keys: their slot never released": (
        "backward_keys_claimed.py",
        "        release_tile(kv_empty, served)\n",
        "",
    ),
    "claimed keys: loads before the last results are stored": (
        "backward_keys_claimed.py",
        "        tma.store_wait(0)\n",
        "",
    ),
    "claimed keys: keys overwritten while the other reads them": (
        "backward_keys_claimed.py",
        "            await_tile(done, served)\n",
        "",
    ),
    "claimed keys: the first tile's keys for all": (
        "backward_keys_claimed.py",
        "kv = (served & 1) * 2",
        "kv = served * 0",
    ),
    "claimed keys: steps counted anew for each tile": (
        "backward_keys_claimed.py",
        "        begun = end\n        served += 1\n        t = take_claim",
        "        served += 1\n        t = take_claim",
    ),
    "claimed keys: the last step's dq forgotten": (
        "backward_keys_claimed.py",
        "                add_dq(end - 1, part, problem, dq, W, BM, D, GROUP)\n",
        "",
    ),
    "claimed queries: loads before dq is stored": (
        "backward_queries_claimed.py",
        "        tma.store_wait(0)\n",
        "",
    ),
    "claimed queries: rows of the other warpgroup": (
        "backward_queries_claimed.py",
        "row = gl.expand_dims(query + W * 64 +",
        "row = gl.expand_dims(query +",
    ),
    "claims: taken before they are there": (
        "claims.py",
        "    await_tile(full, served)\n",
        "",
    ),
    "claims: heads of the next round": (
        "claims.py",
        "first + place % together",
        "place % together",
    ),
    "rows: claims begin where they ended": (
        "backward_rows.py",
        "tl.store(claims + tl.arange(0, 2), 0)",
        "tl.store(claims + tl.arange(0, 2), 1)",
    ),
    "turns: a tile by its head": (
        "backward_tiles.py",
        "return place // at_once,",
        "return place % tiles,",
    ),
    "turns: only the first heads": (
        "backward_tiles.py",
        "gl.program_id(1) * at_once + place % at_once",
        "place % at_once",
    ),
    "parts: added to those of another key head": (
        "backward.py",
        "part.unflatten(1, (-1, plan.split)), 2",
        "part.unflatten(1, (plan.split, -1)), 1",
    ),
    "tiles: ALiBi aligned with the first key": (
        "backward_tiles.py",
        "(tile * BM + seq_k - seq_q)",
        "(tile * BM)",
    ),
}
"""Of the backward kernels: in which file what is replaced by what."""

SHARED = {
    "ragged rows read before their sequence": (
        "tma_load(desc, [LIMIT, start + length, head, LIMIT - length + row, COLUMN]",
        "tma_load(desc, [LIMIT, start + length, head, LIMIT - length + row - 1, COLUMN]",
    ),
    "ragged rows without a bound": ("heads, ROWS_AT_MOST, dim)", "heads, FAR, dim)"),
    "rows of another head stored": (
        "tma_store(desc, [sequence, head, row, COLUMN]",
        "tma_store(desc, [sequence, 0, row, COLUMN]",
    ),
}
"""Of descriptors.py, which both directions use."""


def examine_forward(changes, orders=ORDERS):
    """Every kind of loop, shape and ending of the kernel. Raises AssertionError where something is
    wrong."""
    for seed in range(orders):
        for dim, rule in (
            (128, "full"), (64, "causal"), (256, "window"), (128, "softcap"), (128, "ALiBi"),
            (128, "sink"), (96, "causal"), (192, "full"),
        ):  # fmt: skip
            hopper = Hopper(seed=seed, processors=2, changes=changes)
            check_forward(hopper, *tensors(dim, (4, 2), (150, 290))[1:], scale=0.1, **EVERY[rule])
        for rule in ("bias", "mask"):
            hopper = Hopper(seed=seed, processors=2, changes=changes)
            two = tensors(64, (2, 1), (150, 290), batch=2)[1:]
            check_forward(hopper, *two, scale=0.1, **EVERY[rule])
        check_forward(
            Hopper(seed=seed, changes=changes),
            *tensors(64, (1, 1), (200, 64))[1:],
            scale=0.1,
            **CAUSAL,
        )
        hopper = Hopper(seed=seed, processors=2, changes=changes)
        check_ragged_forward(hopper, (2, 1), [70, 0, 130, 20], [50, 9, 140, 40])
        hopper = Hopper(seed=seed, processors=2, changes=changes)
        hopper.forward.ROUND = 2
        check_forward(hopper, *tensors(64, (5, 5), (150, 290))[1:], scale=0.1, **CAUSAL)
        hopper = Hopper(seed=seed, processors=2, changes=changes)
        hopper.forward.ROUND = 4
        check_ragged_forward(hopper, (3, 3), [70, 0, 130, 20, 1], [50, 9, 140, 40, 1])


def examine_backward(changes, orders=ORDERS):
    for seed in range(orders):
        for dim, rule in (
            (256, "full"),
            (64, "causal"),
            (128, "window"),
            (128, "softcap"),
            (256, "softcap"),
            (256, "ALiBi"),
            (128, "ALiBi"),
            (64, "lse"),
        ):
            hopper = with_atomics(Hopper(seed=seed, changes=changes))
            check_backward(hopper, *tensors(dim, (2, 1), (150, 290)), scale=0.1, **EVERY[rule])
        hopper = Hopper(seed=seed, changes=changes)
        check_backward(hopper, *tensors(64, (1, 1), (300, 100)), scale=0.1, **EVERY["ALiBi"])
        for dim, heads in ((64, (6, 2)), (256, (4, 2)), (64, (12, 4))):
            hopper = with_atomics(Hopper(seed=seed, changes=changes))
            spread = tensors(dim, heads, (150, 290))
            check_backward(hopper, *spread, scale=0.1, waves=20, **CAUSAL)
        for dim, atomic in ((64, True), (128, False)):
            hopper = claiming(Hopper(seed=seed, changes=changes), atomic=atomic)
            hopper.forward.ROUND = 2
            many = tensors(dim, (4, 2), (150, 290), batch=3)
            check_backward(hopper, *many, scale=0.1, **CAUSAL)


def some(defects):
    """Every twelfth in `make test`, all in `make emulation`."""
    return pytest.mark.parametrize(
        "defect",
        [
            pytest.param(d, marks=pytest.mark.emulation if i % 12 else ())
            for i, d in enumerate(defects)
        ],
    )


@some(FORWARD)
def test_a_defect_of_the_forward_kernel_is_found(defect):
    with pytest.raises(AssertionError):
        examine_forward({"forward.py": FORWARD[defect]})


@some(BLOCKS)
def test_a_defect_of_the_blocks_is_found(defect):
    name, *change = BLOCKS[defect]
    with pytest.raises(AssertionError):
        examine_forward({name: tuple(change)})


@some(BACKWARD)
def test_a_defect_of_the_backward_kernels_is_found(defect):
    name, *change = BACKWARD[defect]
    with pytest.raises(AssertionError):
        examine_backward({name: tuple(change)})


@some(SHARED)
def test_a_defect_of_the_boxes_is_found(defect):
    with pytest.raises(AssertionError):
        examine_forward({"descriptors.py": SHARED[defect]})


@pytest.mark.emulation  # in `make test` the kernels pass the same checks one by one
def test_the_same_examination_passes_without_a_defect():
    examine_forward({}, orders=1)
    examine_backward({}, orders=1)
