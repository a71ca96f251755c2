"""The patterns of the sentences on waiting and ended jobs, alerts, and what may be cleaned up."""

PATTERNS = (
    "jobs {numbers} and {job}",
    "job {job}",
    "{amount} reserved on each device",
    "{span} for each attempt",
    "lowered by {n}",
    "at most {amount}",
    "REPLAY of {file}: recorded, not live",
    "counted by {rest} over its last {span}",
    "averaged by the card over a second: it reports no instantaneous power",
    "hardware counters (GPM): DRAM busy share x {rate} TB/s",
    "memory that the GPU shares with the CPU: from /proc/meminfo, as NVML does not support it",
    "the daemon does not run in a delegated cgroup. To have systemd 254 or newer start the "
    "daemon so that it can: {command}",
    "the daemon has no group apart from its jobs. To have systemd 254 or newer start the "
    "daemon so that it can: {command}, and start it again",
    "systemd did not delegate the cgroup controller {name} to you",
    "a job needs 0 or more GPUs, not {value}",
    "a lost job is retried as often as a failed one: add a number of retries",
    "memory and a type of GPU need a number of GPUs, such as --gpus 1",
    "no command was given. Example: {command}",
    "a command or a folder cannot contain a NUL character",
    "a job has up to {n} tags",
    "the name of an environment variable cannot be empty or contain '='",
    "job {job} is {status}: it does not wait",
    "job {job} is {status}: only waiting jobs have a place in the queue",
    "job {job} is {status}: it is too late to change {name}",
    "job {job} has ended already: {status}",
    "expected a whole number, 0 or more; got {value}",
    "expected a whole number; got {value}",
    "expected a number of processors, such as 8 or 0.5; got {value}",
    "an amount of memory such as 20GiB or 512MiB is needed; got {value}",
    "a time such as 90s, 45min, 2h or 1d is needed; got {value}",
    "a time such as 22:30, a date such as 2026-12-01 08:00, or a span such as +2h, is "
    "needed; got {value}",
    "{value} is less than 1 MiB: add a unit, as in 20GiB",
    "indices such as 0-9, 0-100:10 or 1,4,7 are needed; got {value}",
    "an index is named twice",
    "1 to {n} jobs can be submitted at once",
    "enter NAME=VALUE, with quotes as in a terminal: {problem}",
)
"""The more specific first; see `gpudeck.assistant.language.sentences` for the named parts."""
