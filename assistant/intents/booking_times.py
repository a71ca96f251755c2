"""Read the times of bookings, and the days and moments of other orders."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gpudeck.assistant.intents import amounts
from gpudeck.assistant.intents.moments import is_day, is_whole_day, of_same_month
from gpudeck.assistant.intents.related_amounts import RelatedAmounts
from gpudeck.assistant.intents.values import Unread

_IS_END = re.compile(
    r"(?i)(?<!\w)(?:until|till?|to|through|thru|by|before|ending|bis|jusqu\w*|vor|avant|hasta|antes"
    r"|al?|aux?|à)(?!\w)"
)
"""A word before the end of a booking."""
_FROM_TO = re.compile(
    r"(?P<from>(?!.*\d{4}-\d\d).*?\d(?:[:h]\d\d)?) ?[-–] ?(?P<to>\d{1,2}(?:[:h]\d\d)?.*)"
)
"""A time and its end in one, such as `tomorrow 9-13`."""


class BookingTimes(RelatedAmounts):
    """Read such times."""

    def booking(self) -> dict[str, str]:
        """Return from when to when GPUs are kept, and for which group."""
        found: dict[str, str] = {}
        last = self.state.order.options if self.state.order is not None else {}
        begin, until = self.letters("from"), self.letters("until")
        if begin and not until and (both := _FROM_TO.fullmatch(begin[0])) is not None:
            begin, until = [both["from"]], [both["to"]]
        is_end = begin or last or not until or not self._is_whole_day(until[0])
        if not (is_end or _IS_END.search(self.text[: self.place_of("until")[1]])):
            begin, until = until, []  # "le 12"
        if begin and until:
            begin = [of_same_month(begin[0], until[0], self.now)]
        which, named = self.letters("gpus") or self.letters("count"), self.devices()
        if named and self.number("count") not in (None, len(named)):
            raise Unread(self.letters("count")[0])  # "3 gpus, gpu 1 and 2"
        ends = until or last or self.letters("duration")
        if begin and which and not ends and self._is_whole_day(begin[0]):
            found |= self._whole_day(begin[0])
        elif begin and which and not ends and is_day(begin[0]):
            found["begin"] = self.day(begin[0])  # the answer asks for its end
        elif begin:
            found["begin"] = self._moment(begin[0], last.get("begin", ""))
        # "An hour longer, until 14:00" names a booking that exists, and is none from now on.
        length = self.letters("duration") if begin or last or not until else []
        if until:
            behind = found.get("begin", last.get("begin", ""))
            found["until"] = self._moment(until[0], last.get("until", ""), behind)
        elif begin and " " in last.get("until", ""):  # the same time of the other day
            found["until"] = f"{found['begin'][:10]} {last['until'][11:]}"
        elif length:
            whole = slice(*amounts.widened(self.text, *self.place_of("duration")))
            if last and amounts.is_related(self.text[whole]):
                raise Unread(self.text[whole])  # it is longer than before, or shorter
            found["until"] = f"+{self.length(length[0])}"
        if group := self.group():
            found["group"] = group
        return found

    def day(self, letters: str) -> str:
        """Return a moment; that of a day alone is 8:00, and that of an evening 20:00.

        Raises Unread if that is past, as 8:00 of today may be.
        """
        try:
            return self.moment(letters)
        except Unread:
            if not is_day(letters):
                raise
            found, end = (datetime.fromisoformat(self.moment(f"{letters} {clock}"))
                          for clock in ("8:00", "23:59"))  # fmt: skip
            if (found.date() - end.date()).days == 1:  # the next day is not today
                raise
            return f"{found:%Y-%m-%d %H:%M}"

    def _moment(self, letters: str, last: str, after: str = "") -> str:
        """Return a moment; a day alone changes the day of the last one.

        Raises Unread for a length of time, as in `an hour later`.
        """
        if amounts.is_of_clock(letters):
            raise Unread(letters)
        try:
            found = self.moment(letters, after)
        except Unread:
            if not last:
                raise
            return self.moment(f"{letters} {last[11:]}", after)
        return f"{found} {last[11:]}".strip() if " " not in found else found

    def _is_whole_day(self, letters: str) -> bool:
        """Return whether letters name a day of the week or a date, without any time of it."""
        try:
            return is_whole_day(letters) or len(self.moment(letters)) == len("2026-12-01")
        except Unread:
            return False

    def _whole_day(self, letters: str) -> dict[str, str]:
        """Return the begin and the end of a day; what is left of today begins now."""
        last = datetime.fromisoformat(self.moment(f"{letters} 23:59")).date()
        until = {"until": f"{last + timedelta(days=1):%Y-%m-%d}"}
        is_today = last == datetime.fromtimestamp(self.now).date()
        return until if is_today else {"begin": f"{last:%Y-%m-%d}", **until}

    def place_of(self, field: str) -> tuple[int, int]:
        """Return the place of the first letters of a field."""
        spans = zip(self.found.spans, self.found.places, strict=True)
        return next(place for (name, _), place in spans if name == field)
