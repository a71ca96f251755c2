"""Refuse what no order has a place for, and parts of which one may take the other back."""

from __future__ import annotations

import re
from datetime import datetime

from gpudeck.assistant.intents import amounts
from gpudeck.assistant.intents.booking_times import BookingTimes
from gpudeck.assistant.intents.moments import is_day, is_evening, with_digits
from gpudeck.assistant.intents.thresholds import PLAIN
from gpudeck.assistant.intents.values import Unread

_MOMENTS = frozenset({"begin", "from", "until"})
_RELATIVE = re.compile(
    r"(?i)(?<!\w)(?:over|above|than|by|vor|[uü]ber|als|um|devant|sobre|que)\s+"
    r"(?:(?:job|the|le|la|el)\s+)?$"
)
"""Before a number that is how much more, or the job that something comes before."""
_JOBS_BEHIND = re.compile(
    r"(?i)\s+(?:jobs|runs|tasks|trainings|auftr[aä]ge|läufe|t[aâ]ches|trabajos|tareas)(?!\w)"
)
"""Behind a number that counts jobs, and is that of none."""
_SINGLE = ("begin", "from", "until", "timeout", "duration", "count", "memory", "retries", "name",
           "user", "gpu_type")  # fmt: skip
"""Fields of which an order has one value."""


class OrderRefusals(BookingTimes):
    """Refuse such parts of orders."""

    def refuse_other_times(self, name: str) -> None:
        """Refuse what no order has a place for: later times, conditions, and parts of questions."""
        self.refuse(
            *(["at"] if name != "resume" else []),
            "if",
            "limit",
            "which",
            "above",
            "below",
            "combine",
            "by",
            *(["time"] if name != "unbook" and not self._is_past(name) else []),
        )

    def refuse_two_values(self) -> None:
        """Refuse two values of what has one: the second may take the first back."""
        for field in _SINGLE:
            said = [letters for name, letters in self.found.spans
                    if name == field and self._is_value(field, letters)]  # fmt: skip
            if len(said) > 1 and not (field in ("begin", "from") and is_day(said[0])):
                raise Unread(said[1])

    def refuse_counts(self) -> None:
        """Refuse a number of jobs, such as `14 jobs`, that was found to be the one of a job."""
        said = [letters for name, letters in self.found.spans if name == "jobs"]
        is_number = len(said) == 1 and said[0].isdigit()
        if is_number and _JOBS_BEHIND.match(self.text, self.place_of("jobs")[1]):
            raise Unread(said[0])

    def itself(self, letters: str) -> str:
        """Return the letters of a number. Raises Unread if it is only how much more or less."""
        before, _, behind = self.text.partition(letters)
        if _RELATIVE.search(before) or amounts.is_related(f"{letters} {behind[:12]}"):
            raise Unread(letters)
        return letters

    def _is_value(self, field: str, letters: str) -> bool:
        """Return whether letters of a field are a value by themselves, and no piece of another."""
        if field in ("name", "user", "gpu_type") or re.search(r"\d", with_digits(letters)):
            return True
        try:
            return field in _MOMENTS and bool(self.day(letters))
        except Unread:
            return False

    def _is_past(self, name: str) -> bool:
        """Return whether a time only says of a job that is named when it failed or ran today.

        The job that a name stands for is the newest one that ended. What may be a later time, as
        `heute Nacht`, is none of these; it is the encoder's `plain` that excludes the others.
        """
        said = self.letters("time")
        if name != "retry" or not (said and self.letters("jobs")) or self.found.plain < PLAIN:
            return False
        span = self.time()
        today = datetime.fromtimestamp(self.now).replace(hour=0, minute=0, second=0, microsecond=0)
        return (
            span is not None and today.timestamp() <= span.since <= span.until <= self.now
            and not any(is_evening(letters) for letters in said)
        )  # fmt: skip
