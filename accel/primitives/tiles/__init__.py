"""Blocks that kernels are built of: functions on tiles, to be called inside of kernels.

In Triton, for every GPU: `memory` loads and stores tiles, `products` multiplies them and finishes
sums, `softmax` runs over blocks of scores, `reductions` and `scans` along rows. In Gluon, for
Hopper: `ring` moves tiles through shared memory between warps, `warpgroup` works on tiles in
registers. None knows an operation; docs/manual/tiles.md builds a kernel of them.
"""
