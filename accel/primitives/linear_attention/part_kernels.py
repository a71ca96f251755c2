"""Join the parts of sequences that were computed side by side, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.linear_attention.memory_kernels import load_state, store_state


@triton.jit(do_not_specialize=["heads", "sequences"])
def join(
    turns_ptr, added_ptr, reaches_ptr, first_ptr, joined_ptr, heads, sequences,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    STEP: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Compute the state before a part of a sequence and head; one program BLOCK of its values.

    A part turns the state S before it into M S + L, where `turns` [parts, sequences, heads, KEYS,
    KEYS] holds M and `added` [parts, sequences, heads, KEYS, VALUES] holds L. `first` is the state
    before the first part, zero if it is None. With BACK, gradients go from the last part to the
    first: M is transposed, `first` is the gradient after the last part, and `joined` those after
    each. Every program begins behind the nearest part on its way whose M is zero, as `reaches`
    [parts, sequences, heads] says. Products are of float32 throughout, as the error of a part is in
    all that follow.
    """
    head, sequence = tl.program_id(1), tl.program_id(2) % sequences
    part, parts = tl.program_id(2) // sequences, tl.num_programs(2) // sequences
    place = part * sequences + sequence
    # parts are counted from the side that they are joined from
    number = parts - 1 - part if BACK else part
    step = -sequences if BACK else sequences
    origin = place - number * step
    begin, reach = number, 1
    while (begin > 0) & (reach > 0):
        reach = tl.load(reaches_ptr + (origin + (begin - 1) * step) * heads + head)
        begin -= reach
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, WIDTH)
    state = tl.zeros([WIDTH, BLOCK], tl.float32)
    if begin > 0:
        last = origin + (begin - 1) * step
        state += load_state(added_ptr, last, head, heads, dims, values, KEYS, VALUES)
    elif first_ptr is not None:
        state += load_state(first_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
    for n in range(begin, number):
        # what the threads of this program store is loaded by others of them
        store_state(joined_ptr, state, place, head, heads, dims, values, KEYS, VALUES)
        tl.debug_barrier()
        here = origin + n * step
        state = load_state(added_ptr, here, head, heads, dims, values, KEYS, VALUES)
        for first in range(0, KEYS, STEP):
            some = first + tl.arange(0, STEP)
            before = load_state(joined_ptr, place, head, heads, some, values, KEYS, VALUES)
            if BACK:
                turn = tl.trans(load_state(turns_ptr, here, head, heads, some, dims, KEYS, KEYS))
            else:
                turn = load_state(turns_ptr, here, head, heads, dims, some, KEYS, KEYS)
            state += tl.dot(turn, before, input_precision="ieee")
        tl.debug_barrier()
    store_state(joined_ptr, state, place, head, heads, dims, values, KEYS, VALUES)
