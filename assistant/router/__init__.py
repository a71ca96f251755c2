"""The small RWKV-7 model that reads requests: its tokens, its network and constrained decoding.

It runs in NumPy on one thread, so that reading a request needs neither torch nor a loaded engine.
"""
