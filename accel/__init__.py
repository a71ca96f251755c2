"""Tensors in, tensors out: accelerated attention and its workloads. Importing this costs nothing (no torch)."""
