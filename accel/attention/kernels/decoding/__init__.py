"""Attention of a few queries over long keys, contiguous or in pages, also quantized."""
