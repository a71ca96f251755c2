"""Attention whose memory is a matrix of fixed size: retention, GLA, Mamba-2, delta rules, RWKV-7.

`api` validates and chooses a backend; `kinds` turns each kind into the one recurrence of `problem`;
`reference` computes it token by token, `chunked` in torch and `fused` with the Triton kernels of
`kernels` and `gradient_kernels`.
"""
