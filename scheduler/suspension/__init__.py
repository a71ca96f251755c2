"""Take CUDA programs off the GPU, whole, and bring them back.

The driver copies the GPU memory of a process to the host and frees the GPU (driver 570 and later).
A helper process makes the driver's calls, because they can hang; the daemon keeps the evidence, so
that a suspended program is never forgotten.
"""
