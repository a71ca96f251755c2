"""Attention whose memory is a matrix of fixed size: retention, GLA, Mamba-2, delta rules, RWKV-7.

`api` validates and chooses a backend; `kinds` turns each kind into the one recurrence of `problem`;
`reference` computes it token by token, `chunked` in torch and `fused` in Triton, as `plan` cuts it
into programs: `chunk_kernels` for what does not depend on the state, `scan_kernels` for the pass
over the chunks, `part_kernels` for joining parts of a sequence that were passed over side by side,
and `gradient_kernels` for all of it in reverse. Where each head has one decay for all tokens,
`single_pass` needs no kernels but those of `single_kernels`.
"""
