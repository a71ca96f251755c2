"""RWKV-7, a recurrent language model: weights, tokenizer, sampling, and its steps on a CPU and on a
GPU.

Begin with `accel.rwkv.model.RWKV7`, `accel.rwkv.tokenizer.Tokenizer` and
`accel.rwkv.sampling.Sampler`.
"""
