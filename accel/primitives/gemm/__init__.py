"""Matrix products: `gemm` with an epilogue, `fp8_gemm`, `fp4_gemm`, and products of experts.

`api` validates and computes gradients; `dispatch` chooses a backend for a `problem`, which may be
measured in `table`; `backends` has them by name; `portable` and `hopper` launch our kernels;
`reference` computes in float64.
"""
