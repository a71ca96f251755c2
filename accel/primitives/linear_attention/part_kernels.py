"""Join the parts of sequences that were computed side by side, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from accel.primitives.linear_attention.memory_kernels import load_state, store_state


@triton.jit(do_not_specialize=["heads", "sequences", "parts"])
def join(
    turns_ptr, added_ptr, first_ptr, joined_ptr, heads, sequences, parts,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    STEP: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Compute the state before each part of a sequence and head; one program BLOCK of its values.

    A part turns the state S before it into M S + L, where `turns` [parts, sequences, heads, KEYS,
    KEYS] holds M and `added` [parts, sequences, heads, KEYS, VALUES] holds L. `first` is the state
    before the first part, zero if it is None. With BACK, gradients go from the last part to the
    first: M is transposed, `first` is the gradient after the last part, and `joined` those after
    each. Products are of float32 throughout, as the error of a part is in all that follow.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, WIDTH)
    state = tl.zeros([WIDTH, BLOCK], tl.float32)
    if first_ptr is not None:
        state += load_state(first_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
    for n in range(parts):
        place = (parts - 1 - n if BACK else n) * sequences + sequence
        store_state(joined_ptr, state, place, head, heads, dims, values, KEYS, VALUES)
        if n + 1 < parts:
            tl.debug_barrier()  # what the threads of a program stored is loaded by others of them
            state = load_state(added_ptr, place, head, heads, dims, values, KEYS, VALUES)
            for first in range(0, KEYS, STEP):
                some = first + tl.arange(0, STEP)
                before = load_state(joined_ptr, place, head, heads, some, values, KEYS, VALUES)
                if BACK:
                    turn = tl.trans(
                        load_state(turns_ptr, place, head, heads, some, dims, KEYS, KEYS)
                    )
                else:
                    turn = load_state(turns_ptr, place, head, heads, dims, some, KEYS, KEYS)
                state += tl.dot(turn, before, input_precision="ieee")
