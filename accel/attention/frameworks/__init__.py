"""Offer attention to other programs: PyTorch, flash-attn's functions and Hugging Face models."""
