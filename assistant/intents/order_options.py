"""Read the options of orders: those of new jobs, of jobs that are changed, and until when."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpudeck.assistant.intents.moments import LENGTH, is_day, length_of
from gpudeck.assistant.intents.order_refusals import OrderRefusals
from gpudeck.assistant.intents.values import Unread

_DEADLINE = re.compile(
    r"(?i)(?<!\w)(?:by|bis|spätestens(?: um)?|d'ici|no later than|(?<!not )before|(?<!pas )avant"
    r"|(?<!no )antes de)(?: the| las?| les?| um)?\s*$"
)
"""It stands before a moment by which a job shall have ended."""
_ENDING = re.compile(
    r"(?i)\b(?:job|termin|finish|end(?:e|s|ed)?\b|done|over\b|fertig|beendet|fini|fin\b|final\b"
    r"|acab|through\b)"
)
"""A word for the end of a job, which is no moment that is known."""
_UNTIL_END = re.compile(
    rf"(?i)\b(?:until|till|bis|jusqu|hasta)\b[^,.;]*{_ENDING.pattern[4:]}[^,.;]*$"
)
"""It stands before a number that is the job that ends: `hasta que termine el 14`."""
_HAS_ENDED = re.compile(rf"(?i)\s+(?:\w+\s+)?{_ENDING.pattern[4:].replace('job|', '')}")
"""It stands behind one: `14 is done`."""
_SOON = re.compile(rf"(?:in|dans|en|dentro de) {LENGTH}", re.IGNORECASE)
OF_NEW_JOBS = frozenset({"command", "count", "gpus", "gpu_type", "memory", "host_memory", "cpus",
                         "timeout", "retries", "priority", "name", "group", "tag", "after",
                         "after_any", "begin"})  # fmt: skip
"""The fields that a new job may have."""


class OrderOptions(OrderRefusals):
    """Read such options."""

    def options(self, verb: str, *, to_group: bool) -> dict[str, str]:
        """Return the options of an order, as the command line takes them."""
        if verb == "hold":
            return self.until_when()
        if verb == "unbook":
            said = self.letters("from") or self.letters("time") or self.letters("until")
            return {"begin": self.moment(f"{said[0]} 12:00")[:10]} if said else {}
        if verb == "free":
            self.refuse("from")
        if verb in ("book", "free"):
            return self.booking()
        if verb not in ("retry", "edit"):
            return {}
        self.refuse("until", *(["command"] if verb == "edit" else []))
        found = self._of_job() | self._on_gpu()
        return found | ({"group": self.group()} if to_group else {})

    def until_when(self) -> dict[str, str]:
        """Return until when jobs are held."""
        if until := self.letters("until") or self.letters("at"):
            before, _, behind = self.text.partition(until[0])
            if (_ENDING.search(until[0]) or _UNTIL_END.search(before)
                    or _HAS_ENDED.match(behind)):  # fmt: skip
                raise Unread(until[0])
            soon = _SOON.fullmatch(until[0])
            return {"until": f"+{length_of(soon['length'])}" if soon else self.day(until[0])}
        length = self.letters("duration")
        return {"until": f"+{self.length(length[0])}"} if length else {}

    def _of_job(self) -> dict[str, str]:
        """Return the options of a job."""
        if not (self.letters("priority") or self.says_amount()):
            self.refuse("change")
        self.refuse("workload", "array", "folder", "cpus", "host_memory",
                     "notes")  # fmt: skip
        return self.said_of_job(self.relations())

    def said_of_job(self, related: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a job whose letters were found. Raises Unread."""
        level, name = None, self.letters("name")
        if self.letters("priority") or not self.says_amount():
            for letters in self.letters("priority"):
                self.itself(letters)
            level = self.priority()
        lengths = self.lengths()
        found = {
            "gpus": self.number("count") if "gpus" not in related else None,
            "retries": self.number("retries"), "priority": level,
            "after": ",".join(map(str, self.jobs("after"))) or None,
            "after_any": ",".join(map(str, self.jobs("after_any"))) or None,
            "memory": None if "memory" in related else self.size_option("memory") or None,
            "timeout": self.length(lengths[0]) if lengths and "timeout" not in related else None,
            "begin": None if "begin" in related else self._begin(),
            "name": name[0] if name else None,
        }  # fmt: skip
        return {option: str(value) for option, value in found.items() if value is not None}

    def _begin(self) -> str | None:
        """Return when a job shall start: a moment, or so long from now, as in `in 2 hours`.

        Raises Unread for a moment by which it shall have ended.
        """
        ahead = self.ahead()
        if ahead and _ENDING.search(self.text):
            raise Unread(ahead[0])  # it shall have ended by then
        said = self.letters("begin") or ahead
        if len(said) > 1 and is_day(said[0]):  # "tonight, from 23:00 on"
            return self.moment(" ".join(said[:2]))
        for letters in said[:1]:
            before = self.text.partition(letters)[0]
            if _DEADLINE.search(before):
                raise Unread(letters)
            is_delay = re.search(r"(?i)(?<!\w)(?:in|dans|en|dentro de)\s*$", before)
            soon = _SOON.fullmatch(f"in {letters}" if is_delay else letters)
            return f"+{length_of(soon['length'])}" if soon else self.day(letters)
        return None

    def said_of_new_job(self) -> dict[str, str]:
        """Return the options of a job that is not there yet.

        Raises Unread for an amount in relation to another: it has none yet.
        """
        if self.relations(changed=False).keys() - {"tags"}:
            fields = ("memory", "timeout", "duration", "begin", "count")
            raise Unread(" ".join(one for field in fields for one in self.letters(field)))
        found = {"group": self.group(), "host_memory": self.size_option("host_memory"),
                 "cpus": str(self.number("cpus") or ""),
                 "tags": ",".join(self.letters("tag")),
                 "preemptible": "yes" * bool(self.marked("preemptible")),
                 "hold": "yes" * bool(self.marked("hold"))}  # fmt: skip
        if on_gpu := self._on_gpu():
            if self.number("count") not in (None, 1):
                raise Unread(" ".join(self.letters("gpus")))
            found |= {"gpus": "1", **on_gpu}
        return self.said_of_job({}) | {option: value for option, value in found.items() if value}

    def _on_gpu(self) -> dict[str, str]:
        """Return which GPU a job shall have: one by its number, or those of a model.

        Raises Unread for several, or for one that is said in other words.
        """
        said, models = self.letters("gpus"), self.letters("gpu_type")
        found = self.devices()
        if len(found) == 1:
            return {"gpu_type": f"GPU {found[0]}"}
        numbered = [one for one in said if re.search(r"\d{3}", one)]  # "the 4080" is a model
        if len(found) > 1 or len(said) > len(numbered):
            raise Unread(" ".join(said))
        return {"gpu_type": " ".join((*models, *numbered))} if models or numbered else {}
