"""The patterns of the sentences on devices: why a value is missing or a device busy, how a value
was found, where readings come from, and what keeps the daemon from its work."""

PATTERNS = (
    "counted by {jobs} over its last {span}",
    "averaged by the card over a second: it reports no instantaneous power",
    "energy counter of the card, over the interval",
    "memory that the GPU shares with the CPU: from /proc/meminfo, as NVML does not support it",
    "share of time in which the graphics engine was not in its idle state (C6)",
    "hardware counters (GPM): DRAM busy share x {amount}/s",
    "hardware counters (GPM): busy share of the tensor and FP32 pipes x SMs x mean clock. "
    "FP64 and FP16 without tensor cores are not in the sum. "
    "The counters cannot tell the data type: the figure is right for FP16 and BF16; FP8 is twice "
    "and TF32 half of it, and older (mma.sync) kernels are up to half of it. {sub}",
    "The clock is corrected by a calibration of this card",
    "The clock is NVML's own; to measure this card's, run: {command}",
    "replay of {file}",
    "cpu (chosen in the settings)",
    "chosen in the settings",
    "cpu ({sub})",
    "CPU: {sub}",
    "no NVIDIA GPU can be reached: {quote}",
    "no NVIDIA GPU can be read there: {quote}",
    "no NVIDIA GPU found",
    "the NVIDIA driver is loaded, but finds no GPU",
    "no AMD or Intel GPU has a driver",
    "the GPUs are not read so that they can sleep: nobody is watching, and no job for a GPU waits "
    "or runs. A window, a command or such a job wakes them (setting: {name})",
    "the daemon does not run (start it with: {command})",
    "the shared daemon of this machine does not answer. Its administrator sees why with: {command}",
    "the connection to {name} broke",
    "starting",
)
"""The more specific first; see `gpudeck.assistant.language.sentences` for the named parts."""
