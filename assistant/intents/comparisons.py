"""Compare what a question asks for: two things, a thing and the others, or two times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from gpudeck.assistant.intents.question_parts import QuestionParts
from gpudeck.assistant.intents.tokens import unaccented
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import PREVIOUS, Query, Span
from gpudeck.assistant.query.table import SUBJECTS

_TEXTS = frozenset({"command", "log", "files", "state", "driver", "name"})
"""Measures that are words, so that no difference can be computed."""
_SUMMED = frozenset({"energy", "gpu_hours", "duration"})
_USUAL_S = 7 * 86400.0
"""What is usual is the mean of so many seconds."""
_DAY_S = 86400.0
_MONTH_DAYS, _YEAR_DAYS = range(28, 32), range(365, 367)
_LAST_TIME = re.compile(r"(?i)last time|letzte[ns]? mal|derni[eè]re fois|(?:última )?vez")
"""The run before, whenever that was."""
_BEFORE = re.compile(
    r"last|letzte|vor|avant|antes|preceden|anterior|celle|dernier|pasad|previous|other|andere|autre"
)


class Comparisons(QuestionParts):
    """Give a question the other side of its comparison."""

    def _compared(self, query: Query) -> Query:
        """Return a question with what it is compared with, if that is asked for."""
        asked = self.marked("compare")
        if self.letters("time2") or ("before" in asked and query.time is not None):
            return self._with_earlier(query)
        if not asked:
            return query
        if query.measure == "use":
            query = msgspec.structs.replace(query, measure="")
        sides = query.devices if query.subject == "devices" else query.jobs
        if query.subject == "jobs" and len(sides) == 1 and "before" in asked:
            return msgspec.structs.replace(query, other=Query("jobs", text=PREVIOUS))
        measured = SUBJECTS[query.subject].measures.get(query.measure)
        if query.subject == "devices" and measured is not None and measured.history:
            if "before" in asked:
                query = msgspec.structs.replace(query, aggregate="mean")
                past = Span(self.now - _USUAL_S, self.now)
                usual = msgspec.structs.replace(query, time=past)
                return msgspec.structs.replace(query, other=usual)
            if "others" in asked and sides:
                if len(sides) > 1:
                    query = msgspec.structs.replace(query, aggregate="mean")
                rest = msgspec.structs.replace(query, devices=(), exclude=sides, aggregate="mean")
                return msgspec.structs.replace(query, other=rest)
        if "others" in asked and query.subject == "devices":
            return msgspec.structs.replace(query, devices=())  # the rows show which is unlike them
        if "each" not in asked and len(sides) < 2:
            raise Unread("compare")
        if len(sides) != 2 or query.measure in _TEXTS:
            return query  # its rows stand one below the other
        field = "devices" if query.subject == "devices" else "jobs"
        other = msgspec.structs.replace(query, **{field: sides[1:]})
        return msgspec.structs.replace(query, **{field: sides[:1], "other": other})

    def _with_earlier(self, query: Query) -> Query:
        """Return a question beside the same one about another time.

        Raises Unread if the other time is none, or what is asked for has no value for a time.
        """
        letters, how = " ".join(self.letters("time2")), query.aggregate
        if query.subject == "devices":
            measure = SUBJECTS["devices"].measures.get(query.measure)
            if measure is None or not measure.history:
                raise Unread(letters or "compare")
            how = how or "mean"
        elif not how:
            how = "count" if not query.measure else "sum" if query.measure in _SUMMED else "mean"
            if query.measure and query.measure in _TEXTS | {"reason", "failure", "user"}:
                raise Unread(letters or "compare")
        if query.subject == "jobs" and len(query.jobs) == 1 and _LAST_TIME.search(letters):
            return msgspec.structs.replace(query, other=Query("jobs", text=PREVIOUS))
        if query.subject == "jobs" and query.jobs and letters:
            past = msgspec.structs.replace(query, jobs=(), states=(), time=self.time("time2"),
                                           aggregate="last", limit=1)  # fmt: skip
            return msgspec.structs.replace(query, other=past)
        earlier, asked = self._earlier(letters, query.time), query.time
        if asked is not None and earlier is not None:
            asked, earlier = _apart(asked, earlier)
        query = msgspec.structs.replace(query, aggregate=how, by="", extreme=False, time=asked)
        return msgspec.structs.replace(query, other=msgspec.structs.replace(query, time=earlier))

    def _earlier(self, letters: str, span: Span | None) -> Span | None:
        """Return the other time of a comparison: one that is named, or the one before."""
        found = None
        if letters:
            try:
                found = self.time("time2")
            except Unread:
                if not _BEFORE.search(unaccented(letters.casefold())):
                    raise
        if found is not None and found != span:
            return found
        if span is None or span.since <= 0:
            raise Unread(letters or "compare")
        length = max(span.until - span.since, 3600.0)
        return Span(span.since - length, span.since)


def _apart(one: Span, other: Span) -> tuple[Span, Span]:
    """Return two times of a comparison without what both contain.

    Beside `this week`, `last week` is the calendar week before. Of other times, the one that begins
    first ends where the other one begins.
    """
    if one.point or other.point or one.until <= other.since or other.until <= one.since:
        return one, other
    current = [span for span in (one, other) if _begins_day(span)]
    if len(current) == 1 and current[0].until >= max(one.until, other.until):
        (kept,) = current
        before = _calendar_before(kept, other if kept is one else one)
    else:
        kept = max(one, other, key=lambda span: (span.since, -span.until))
        first = other if kept is one else one
        inside = first.since < kept.since
        before = Span(first.since, kept.since) if inside else Span(kept.until, first.until)
    return (kept, before) if kept is one else (before, kept)


def _begins_day(span: Span) -> bool:
    begin = datetime.fromtimestamp(span.since)
    return begin == datetime(begin.year, begin.month, begin.day)


def _calendar_before(current: Span, other: Span) -> Span:
    """Return the year, month or days before a time, as long as another time is."""
    end = datetime.fromtimestamp(current.since)
    days = max(round((other.until - other.since) / _DAY_S), 1)
    begin = end - timedelta(days=days)
    if days in _MONTH_DAYS:
        begin = (end - timedelta(days=1)).replace(day=1)
    elif days in _YEAR_DAYS:
        begin = end.replace(year=end.year - 1)
    return Span(begin.timestamp(), current.since)
