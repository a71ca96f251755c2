"""Fuse a PyTorch module into Triton kernels made from templates.

`capture` writes a module down as a function of tensors, `grouping` cuts its graph into steps,
`kernel_text` writes the kernels of the steps, and `program` runs them. What no template computes is
left to the library, by name.
"""
