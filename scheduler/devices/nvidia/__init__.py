"""NVIDIA GPUs through NVML: the one place that knows pynvml. Used by the probe process alone, as NVML can hang in the kernel."""
