"""RWKV-7, a recurrent language model: weights, tokenizer, and its steps on a CPU and on a GPU.

Begin with `gpudeck.accel.rwkv.model.RWKV7` and `gpudeck.accel.rwkv.tokenizer.Tokenizer`;
`gpudeck.accel.serving` answers requests by it.
"""
