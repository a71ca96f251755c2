"""Read NVIDIA GPUs through NVML. Only the probe process imports it: NVML can hang in the kernel."""
