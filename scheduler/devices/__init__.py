"""Read the hardware: NVIDIA GPUs, the CPU, or a recorded trace."""
