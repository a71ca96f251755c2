"""Drop from a sentence the names that it gives beside a number, where they are right."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker.known import Known

NAMED_JOB = re.compile(
    r"\b(?P<first>\d+) \((?P<name>[\w.-]+)\)|\b(?P<before>[\w.-]+) \(job (?P<second>\d+)\)"
)
"""A job with its name in brackets, or the other way round."""
PID = re.compile(r"\b(?P<name>[\w.-]+) \(pid (?P<pid>\d+)\)", re.IGNORECASE)


def without_pid(found: re.Match[str], of: Known) -> str:
    """Return `Xorg` for `Xorg (pid 700)` if that is its number."""
    said = f"{found['name']} (pid {found['pid']},".lower()
    return found["name"] if said in of.words else found[0]


def without_name(found: re.Match[str], of: Known) -> str:
    """Return `job 41` for `job 41 (gemm)` if that is its name."""
    number = found["first"] or found["second"]
    name = found["name"] or found["before"]
    right = str(of.value(f"job{number}", "name")).lower() == name.lower()
    short = found["first"] or f"job {number}"
    return short if right else found[0]


def without_hyphens(sentence: str, of: Known) -> str:
    """Return the sentence with words of facts that it joins by hyphens: `the too-hot alert`."""

    def apart(word: re.Match[str]) -> str:
        spaced = word[0].replace("-", " ")
        joined = word[0].lower() in of.words or spaced.lower() not in of.phrases
        return word[0] if joined else spaced

    return re.sub(r"(?<![\w.-])[a-z]+(?:-[a-z]+)+(?![\w.-])", apart, sentence, flags=re.IGNORECASE)
