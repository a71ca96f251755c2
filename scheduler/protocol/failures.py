"""Recognize why a job failed by the lines of its output, and know the remedy.

The output is foreign text: a line is quoted, and nothing in it is followed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_TAIL = 4000
"""Lines of the end of a log that are searched, the last one first."""


class Failure(NamedTuple):
    """Describe what was recognized."""

    kind: str
    """One of KINDS; the language's catalogue has its remedy."""
    line: str
    """The line that shows it."""


KINDS = {
    "gpu memory": re.compile(
        r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED"
        r"|RESOURCE_EXHAUSTED: Out of memory"
    ),
    "memory": re.compile(
        r"\bMemoryError\b|Cannot allocate memory|std::bad_alloc|oom-kill|Out of memory: Killed"
        r"|DefaultCPUAllocator: can't allocate memory"
    ),
    "nan": re.compile(
        r"\b(?:loss|grad(?:ient)?s?|norm)\b.{0,40}\b(?:nan|inf)\b|\bnan\b.{0,30}\bloss\b"
        r"|contains NaN|NaN (?:detected|encountered|loss)|non-finite",
        re.IGNORECASE,
    ),
    "disk": re.compile(r"No space left on device|Disk quota exceeded|ENOSPC", re.IGNORECASE),
    "import": re.compile(
        r"ModuleNotFoundError|ImportError|cannot open shared object file|No module named"
    ),
    "network": re.compile(
        r"ConnectionError|Connection (?:refused|reset|timed out)|Temporary failure in name"
        r" resolution|Name or service not known|SSLError|Max retries exceeded|NCCL.{0,60}(?:timeout"
        r"|unhandled system error)|Network is unreachable|HTTPError: 5\d\d"
    ),
    "driver": re.compile(
        r"CUDA error: (?:an illegal memory access|device-side assert|unspecified launch failure"
        r"|misaligned)|CUDA driver version is insufficient|no CUDA-capable device|uncorrectable ECC"
    ),
    "permission": re.compile(r"PermissionError|Permission denied"),
    "missing file": re.compile(r"FileNotFoundError|No such file or directory"),
    "killed": re.compile(r"^Killed$|\bSIGKILL\b|signal 9\b"),
    "error": re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b(?::|$)"),
}
"""The strongest first: a later one is only looked for where no earlier one is found."""


def recognized(lines: Sequence[str]) -> Failure | None:
    """Return the cause of a failure that the lines of a log show, or None."""
    tail = [line for line in lines[-_TAIL:] if line.strip()]
    for kind, pattern in KINDS.items():
        for line in reversed(tail):
            if pattern.search(line):
                return Failure(kind, line.strip())
    return None
