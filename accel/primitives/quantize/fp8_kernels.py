"""Round matrices to FP8 in Triton: scales and values in one pass over the elements."""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.tiles.memory import load_tile, store_tile
from gpudeck.accel.primitives.tiles.products import activate, slope
from gpudeck.accel.primitives.tiles.reductions import finite_size, largest_size


@triton.jit
def load(
    ptr, rows, columns, row_count, column_count, stride_row, stride_column, mean_ptr, rstd_ptr,
    gain_ptr, shift_ptr, BEFORE: tl.constexpr,
):  # fmt: skip
    """Load a block in float32 and apply what comes before rounding; what lies outside is 0."""
    x = load_tile(ptr, rows, columns, row_count, column_count, stride_row, stride_column)
    x = x.to(tl.float32)
    if BEFORE == "gelu":
        x = activate(x, "gelu_tanh")
    elif BEFORE == "swiglu":
        right = ptr + column_count * stride_column
        up = load_tile(right, rows, columns, row_count, column_count, stride_row, stride_column)
        x = activate(x, "silu") * up.to(tl.float32)
    elif BEFORE != "none":
        there, within = rows < row_count, columns < column_count
        if mean_ptr is not None:
            x -= tl.load(mean_ptr + rows, mask=there, other=0.0)[:, None]
        x *= tl.load(rstd_ptr + rows, mask=there, other=0.0)[:, None]
        x *= tl.load(gain_ptr + columns, mask=within, other=0.0).to(tl.float32)[None, :]
        if shift_ptr is not None:
            x += tl.load(shift_ptr + columns, mask=within, other=0.0).to(tl.float32)[None, :]
        x = tl.where(there[:, None] & within[None, :], x, 0.0)
    return x


@triton.jit
def statistics(
    x_ptr, mean_ptr, rstd_ptr, row_count, column_count, stride_row, stride_column, eps,
    COLUMNS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Write the mean of a row, if wanted, and the inverse of its deviation from it (or from 0)."""
    row = tl.program_id(0) + tl.arange(0, 1)
    mean = tl.zeros([1], tl.float32)
    if mean_ptr is not None:
        total = tl.zeros([1, COLUMNS], tl.float32)
        for step in range(STEPS):
            columns = step * COLUMNS + tl.arange(0, COLUMNS)
            x = load_tile(x_ptr, row, columns, row_count, column_count, stride_row, stride_column)
            total += x.to(tl.float32)
        mean = tl.sum(total, 1) / column_count
        tl.store(mean_ptr + row, mean)
    total = tl.zeros([1, COLUMNS], tl.float32)
    for step in range(STEPS):
        columns = step * COLUMNS + tl.arange(0, COLUMNS)
        x = load_tile(x_ptr, row, columns, row_count, column_count, stride_row, stride_column)
        apart = tl.where((columns < column_count)[None, :], x.to(tl.float32) - mean[:, None], 0.0)
        total += apart * apart
    tl.store(rstd_ptr + row, tl.rsqrt(tl.sum(total, 1) / column_count + eps))


@triton.jit
def activation_gradient(
    dout_ptr, x_ptr, dx_ptr, row_count, column_count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, BEFORE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of x from that of its `gelu` or `swiglu`, of column_count columns."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    width = column_count
    if BEFORE == "swiglu":
        width = 2 * column_count
    dout = load_tile(dout_ptr, rows, columns, row_count, column_count, column_count, 1)
    dout = dout.to(tl.float32)
    x = load_tile(x_ptr, rows, columns, row_count, column_count, width, 1).to(tl.float32)
    at = rows.to(tl.int64)[:, None] * width + columns[None, :]
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    if BEFORE == "swiglu":
        up = tl.load(x_ptr + column_count + at, mask=inside, other=0.0).to(tl.float32)
        dup = dout * activate(x, "silu")
        tl.store(dx_ptr + column_count + at, dup.to(dx_ptr.dtype.element_ty), mask=inside)
        dx = dout * up * slope(x, "silu")
    else:
        dx = dout * slope(x, "gelu_tanh")
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_of(most, LIMIT: tl.constexpr):
    """Return the scale for a largest magnitude; 1 if that is 0."""
    return tl.where(most > 0, tl.maximum(most * (1.0 / LIMIT), 1.1754943508222875e-38), 1.0)


@triton.jit
def inverse_of(scale):
    """Return 1 / scale, rounded as on a CPU."""
    return tl.div_rn(scale * 0.0 + 1.0, scale)


@triton.jit
def round_to(x, inverse, LIMIT: tl.constexpr):
    """Return x * inverse, which the conversion to FP8 saturates; NaN where x is not finite."""
    return x * inverse + (x - x)  # infinity minus infinity is none


@triton.jit
def interleave(ROWS: tl.constexpr, PACK: tl.constexpr, part: tl.constexpr):
    """Return every PACK-th row of a program's ROWS, from the `part`-th on."""
    return tl.program_id(0) * ROWS + PACK * tl.arange(0, ROWS // PACK) + part


@triton.jit
def load_parts(
    ptr, columns, row_count, column_count, stride_row, stride_column, mean_ptr, rstd_ptr, gain_ptr,
    shift_ptr, BEFORE: tl.constexpr, ROWS: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Load a program's rows as PACK parts of `interleaved` ones; see `load`."""
    parts = ()
    for part in tl.static_range(PACK):
        rows = interleave(ROWS, PACK, part)
        x = load(ptr, rows, columns, row_count, column_count, stride_row, stride_column,
                 mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
        parts += (x,)  # type: ignore[assignment]
    return parts


@triton.jit
def bits(values, ptr):
    """Return the bits of values in the type of a memory of bytes."""
    return values.to(ptr.dtype.element_ty).to(tl.uint8, bitcast=True)


@triton.jit
def store_across(
    ptr, parts, columns, row_count, column_count, ROWS: tl.constexpr, PACK: tl.constexpr
):
    """Store the transpose of PACK parts of `interleaved` rows, which are bytes.

    Where four rows are neighbours in a word, words pass through shared memory, not bytes; row_count
    is a multiple of PACK.
    """
    if PACK == 4:
        low = parts[0].to(tl.uint32) | parts[1].to(tl.uint32) << 8
        words = low | parts[2].to(tl.uint32) << 16 | parts[3].to(tl.uint32) << 24
        at = ptr.to(tl.pointer_type(tl.uint32), bitcast=True)
    else:
        words = parts[0]
        at = ptr.to(tl.pointer_type(tl.uint8), bitcast=True)
    rows = tl.program_id(0) * (ROWS // PACK) + tl.arange(0, ROWS // PACK)
    store_tile(at, tl.trans(words), columns, rows, column_count, row_count // PACK)


@triton.jit
def largest(
    x_ptr, most_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Raise `most` [1] float32 to the largest finite magnitude of a matrix."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    most = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(STEPS):
        columns = (tl.program_id(1) * STEPS + step) * COLUMNS + tl.arange(0, COLUMNS)
        x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
                 mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
        most = tl.maximum(most, finite_size(x))
    found = tl.max(tl.max(most, 1), 0)
    tl.atomic_max(most_ptr, found)


@triton.jit
def by_tensor(
    x_ptr, found_ptr, scale_ptr, most_ptr, out_ptr, across_ptr, row_count, column_count,
    stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LIMIT: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Round by one scale; write the transposed matrix, too, and raise `most` to the largest
    magnitude, if wanted.

    The scale is known, or, with the largest magnitude that was found before, is written.
    """
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    parts = load_parts(x_ptr, columns, row_count, column_count, stride_row, stride_column,
                       mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE, ROWS, PACK)  # fmt: skip
    if found_ptr is None:
        scale = tl.load(scale_ptr)
    else:
        scale = scale_of(tl.load(found_ptr), LIMIT)
        tl.store(scale_ptr, scale)  # every program stores the same
    inverse = inverse_of(scale)
    turned = ()
    for part in tl.static_range(PACK):
        values = round_to(parts[part], inverse, LIMIT)
        if out_ptr is not None:
            rows = interleave(ROWS, PACK, part)
            store_tile(out_ptr, values, rows, columns, row_count, column_count)
        if across_ptr is not None:
            # the sum changes nothing, but gives this store conversions of its own: ptxas 12.8 loses
            # bytes of pairs that two stores share, and 13 crashes there for compute capability 8.9
            turned += (bits(values + 0.0, across_ptr),)  # type: ignore[assignment]
        if most_ptr is not None:
            # most programs have nothing to raise: thousands that do it at one address wait in line
            found = largest_size(parts[part])
            tl.atomic_max(most_ptr, found, mask=found > tl.load(most_ptr, volatile=True))
    if across_ptr is not None:
        store_across(across_ptr, turned, columns, row_count, column_count, ROWS, PACK)


@triton.jit
def by_row(
    x_ptr, out_ptr, scales_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Round rows by their own largest magnitudes; the second reading finds them in the cache."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    most = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(STEPS):
        columns = step * COLUMNS + tl.arange(0, COLUMNS)
        x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
                 mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
        most = tl.maximum(most, finite_size(x))
    scale = scale_of(tl.max(most, 1), LIMIT)
    tl.store(scales_ptr + rows, scale, mask=rows < row_count)
    inverse = inverse_of(scale)[:, None]
    for step in range(STEPS):
        columns = step * COLUMNS + tl.arange(0, COLUMNS)
        x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
                 mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
        store_tile(out_ptr, round_to(x, inverse, LIMIT), rows, columns, row_count, column_count)


@triton.jit
def raise_to(most_ptr, places, count, found):
    """Raise elements of `most` float32 to what was found, where they exist."""
    # magnitudes are not negative, so that their bits are ordered like the numbers
    at = most_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + places
    tl.atomic_max(at, found.to(tl.int32, bitcast=True), mask=places < count)


@triton.jit
def largest_both_ways(
    x_ptr, most_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Raise `most` float32 to the largest finite magnitude of each row and then of each column."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    most = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(STEPS):
        rows = (tl.program_id(0) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
                 mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
        size = finite_size(x)
        raise_to(most_ptr, rows, row_count, tl.max(size, 1))
        most = tl.maximum(most, size)
    raise_to(most_ptr + row_count, columns, column_count, tl.max(most, 0))


@triton.jit
def by_rows_and_columns(
    x_ptr, most_ptr, out_ptr, scales_ptr, across_ptr, across_scales_ptr, row_count, column_count,
    stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LIMIT: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Round by the largest magnitudes of rows, and transposed by those of columns.

    `most` holds those of all rows and then of all columns.
    """
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    parts = load_parts(x_ptr, columns, row_count, column_count, stride_row, stride_column,
                       mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE, ROWS, PACK)  # fmt: skip
    there = columns < column_count
    scale = scale_of(tl.load(most_ptr + row_count + columns, mask=there, other=0.0), LIMIT)
    # every program of these columns, or rows, stores the same
    tl.store(across_scales_ptr + columns, scale, mask=there)
    inverse = inverse_of(scale)[None, :]
    turned = ()
    for part in tl.static_range(PACK):
        values = round_to(parts[part], inverse, LIMIT)
        turned += (bits(values, across_ptr),)  # type: ignore[assignment]
        rows = interleave(ROWS, PACK, part)
        scale = scale_of(tl.load(most_ptr + rows, mask=rows < row_count, other=0.0), LIMIT)
        tl.store(scales_ptr + rows, scale, mask=rows < row_count)
        values = round_to(parts[part], inverse_of(scale)[:, None], LIMIT)
        store_tile(out_ptr, values, rows, columns, row_count, column_count)
    store_across(across_ptr, turned, columns, row_count, column_count, ROWS, PACK)


@triton.jit
def across(
    x_ptr, out_ptr, scales_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LIMIT: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """Write the transposed matrix [columns, rows], rounded along the rows of x.

    Scales are those of ROWS elements of a column, and lie in memory as [rows / ROWS, columns].
    """
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    parts = load_parts(x_ptr, columns, row_count, column_count, stride_row, stride_column,
                       mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE, ROWS, PACK)  # fmt: skip
    most = finite_size(parts[0])
    for part in tl.static_range(1, PACK):
        most = tl.maximum(most, finite_size(parts[part]))
    scale = scale_of(tl.max(most, 0), LIMIT)
    at = scales_ptr + tl.program_id(0).to(tl.int64) * column_count + columns
    tl.store(at, scale, mask=columns < column_count)
    inverse = inverse_of(scale)[None, :]
    turned = ()
    for part in tl.static_range(PACK):
        values = round_to(parts[part], inverse, LIMIT)
        turned += (bits(values, out_ptr),)  # type: ignore[assignment]
    store_across(out_ptr, turned, columns, row_count, column_count, ROWS, PACK)


@triton.jit
def by_tile(
    x_ptr, out_ptr, scales_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Round tiles of 1 x BLOCK.

    Their scales lie in memory as [columns / BLOCK, rows], so that a product loads those of a block
    of rows together.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
             mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
    scale = scale_of(tl.max(finite_size(x), 1), LIMIT)
    at = tl.program_id(1).to(tl.int64) * row_count + rows
    tl.store(scales_ptr + at, scale, mask=rows < row_count)
    values = round_to(x, inverse_of(scale)[:, None], LIMIT)
    store_tile(out_ptr, values, rows, columns, row_count, column_count)


@triton.jit
def by_block(
    x_ptr, out_ptr, across_ptr, scales_ptr, row_count, column_count, stride_row, stride_column,
    mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE: tl.constexpr,
    BLOCK: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Round BLOCK x BLOCK elements by one scale; write the transposed matrix, too, if wanted."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = load(x_ptr, rows, columns, row_count, column_count, stride_row, stride_column,
             mean_ptr, rstd_ptr, gain_ptr, shift_ptr, BEFORE)  # fmt: skip
    scale = scale_of(largest_size(x), LIMIT)
    values = round_to(x, inverse_of(scale), LIMIT)
    tl.store(scales_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), scale)
    store_tile(out_ptr, values, rows, columns, row_count, column_count)
    if across_ptr is not None:
        store_tile(across_ptr, tl.trans(values), columns, rows, column_count, row_count)
