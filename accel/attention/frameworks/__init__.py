"""The doors by which other programs come in: PyTorch's scaled_dot_product_attention, flash-attn's functions, Hugging Face's models."""
