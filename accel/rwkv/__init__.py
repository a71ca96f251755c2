"""RWKV-7, a recurrent language model: weights, tokenizer, and its steps on a CPU and on a GPU.

Begin with `accel.rwkv.model.RWKV7` and `accel.rwkv.tokenizer.Tokenizer`; `accel.serving` answers
requests by it.
"""
