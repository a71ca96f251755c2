"""Numbers of 8 and 4 bits with scales: how tensors are rounded to them, and back.

`fp8` has one scale a tensor, row, 1x128 tile or 128x128 block; `fp4` has NVFP4 and MXFP4. On a GPU
`fused` rounds to FP8 with the kernels of `fp8_kernels`.
"""
