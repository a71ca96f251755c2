"""Make a query or an order of what the encoder found."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gpudeck.assistant.intents.lost_parts import lost_part
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.orders import Orders
from gpudeck.assistant.intents.questions import Questions
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.values import Unknown, Unread
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.assistant.reader.reading import Reading


class Composed(NamedTuple):
    """Hold the request that a reading stands for."""

    request: Request
    also: tuple[Query, ...] = ()
    """The same question about other measures."""
    resolved: tuple[str, ...] = ()
    """What its pronouns stand for."""
    head: str = ""
    """The head that it was made of."""
    left: tuple[tuple[str, str], ...] = ()
    """Parts of a question that have no place in it: their fields, with their letters."""


def compose(
    found: Reading, head: str, known: Known, state: State, now: float, text: str = ""
) -> Composed:
    """Return the request of a reading with one of its heads.

    Args:
        found: What the encoder read.
        head: One of its heads.
        known: The names of this machine.
        state: What the conversation is about.
        now: Seconds since the epoch.
        text: The request, which is searched for the names of settings.

    Raises:
        Unread: A part of it has no value, or the table has no such query or order.
    """
    kind, _, name = head.partition(" ")
    questions = Questions(found, known, state, now, text)
    if kind == "manual":
        return Composed(questions.manual(), head=head)
    if kind == "ask":
        return _asked(found, head, questions)
    if name == "report":
        form = " ".join(questions.letters("format")).casefold()
        report = Query(
            "report",
            jobs=questions.jobs(),
            time=questions.covered(),
            text="pdf" if "pdf" in form else "",
        )
        left = [part for part in _parts(found) if part[0] not in _OF_REPORTS]
        return Composed(report, head=head, left=tuple(left))
    if name == "clean":
        return Composed(Query("debris"), head=head)
    orders = Orders(found, known, state, now, text)
    order = orders.read(name)

    def again(request: str, rest: Reading) -> Order:
        return Orders(rest, known, state, now, request).read(name)

    if lost := lost_part(text, found, order, again):
        raise Unread(lost)
    return Composed(order, (), tuple(orders.resolved), head)


_OF_REPORTS = frozenset({"jobs", "time"})
"""Parts that a report has."""
_OFTEN_LEFT = frozenset(
    {
        "gpus", "gpu_type", "user", "group", "tag", "time", "time2", "ahead", "above", "below",
        "limit", "to", "model", "memory", "duration", "begin", "from", "until", "count", "folder",
        "except", "value",
        "workload", "words", "pid", "priority", "jobs",
    }
)  # fmt: skip
"""Fields whose letters an answer names where it does not take them into account."""
_MARKS = frozenset({"by", "compare", "when", "user", "folder"})
"""Fields of whose marks it tells the same."""
_POINTING = frozenset({"jobs", "gpus", "pid", "model", "group"})
"""Fields of which it tells the same where they point to what was said before."""


def _asked(found: Reading, head: str, questions: Questions) -> Composed:
    """Return the questions of a reading, without the parts that have no value or no place here.

    Raises Unread if nothing is left of it, or if nobody knows which job is meant.
    """
    name = head.partition(" ")[2]
    left: list[tuple[str, str]] = []
    while True:
        try:
            made = questions.read(name)
            break
        except Unknown:
            raise
        except Unread as unread:
            part = _part_of(questions.found, str(unread))
            if part is None:
                raise
            left.append(part)
            questions = questions.reading(_without(questions.found, *part))
    left += questions.lacking
    left += [part for part in _parts(questions.found) if _is_lost(part, made, name, questions)]
    first, *rest = made
    parts = tuple(dict.fromkeys(left))
    return Composed(first, tuple(rest), tuple(questions.resolved), head, parts)


def _parts(found: Reading) -> list[tuple[str, str]]:
    """Return the parts of a reading whose loss matters: fields with their letters or marks."""
    told = [
        (field, value)
        for field, value in _marks_of(found)
        if field in _MARKS or (field in _POINTING and value in ("@it", "@them", "@others"))
    ]
    return [*(part for part in found.spans if part[0] in _OFTEN_LEFT), *sorted(told)]


def _marks_of(found: Reading) -> list[tuple[str, str]]:
    """Return the marks of a reading as fields with their values."""
    return [(field, value) for field, _, value in (mark.partition("=") for mark in found.marks)]


def _part_of(found: Reading, words: str) -> tuple[str, str] | None:
    """Return the part that has no value, by its letters or its field; no job is left out."""
    spans = [(field, letters) for field, letters in found.spans if field != "jobs"]
    marks = _marks_of(found)
    named = [part for part in spans if words and part[1].strip() in words]
    named += [part for part in (*spans, *marks) if part[0] == words]
    named += [part for part in marks if words == "=".join(part)]
    return named[0] if named else None


def _without(found: Reading, field: str, words: str) -> Reading:
    """Return a reading without one of its parts; its letters stay out of all others."""
    spans = tuple(span for span in found.spans if span != (field, words))
    return found._replace(spans=spans, marks=found.marks - {f"{field}={words}"})


def _is_lost(part: tuple[str, str], made: list[Query], name: str, questions: Questions) -> bool:
    """Return whether the same would be asked without a part."""
    if questions.says_nothing(*part) or (part[0] == "by" and any(one.by for one in made)):
        return False
    try:
        return questions.reading(_without(questions.found, *part)).read(name) == made
    except (Unread, ValueError, KeyError):
        return False


_NEW_JOBS = frozenset({"submit", "retry"})


def _amends(request: Request, last: Order | None) -> bool:
    """Return whether an order changes the options of a job that is proposed, and not yet there."""
    return (
        last is not None and last.verb in _NEW_JOBS and isinstance(request, Order)
        and request.verb == "edit" and bool(request.options or request.changes)
        and {*request.jobs} <= {*last.jobs}
        and not (request.states or request.group or request.user)
    )  # fmt: skip


def _merged(last: Order, request: Order) -> dict[str, dict[str, str]]:
    """Return the options and changes of two orders; what the second one says is its own."""
    said = {*request.options, *request.changes}
    options = {name: value for name, value in last.options.items() if name not in said}
    changes = {name: value for name, value in last.changes.items() if name not in said}
    return {"options": options | request.options, "changes": changes | request.changes}


def completing(request: Request, state: State) -> Request:
    """Return an order with what it leaves out as in the order before it, if that was of its kind.

    "make it 40 GB" changes the job of the last change, and "job 16, too" is changed as that was.
    A GPU that the last booking has is all that is left of it; another one is added to it.
    """
    last = state.order
    if _amends(request, last):
        assert isinstance(request, Order) and last is not None
        return replace(last, **_merged(last, request))
    if not isinstance(request, Order) or last is None or last.verb != request.verb:
        return request
    targets = (request.jobs or request.states or request.group or request.devices
               or request.user)  # fmt: skip
    said = (
        request.options
        or request.changes
        or request.number is not None
        or request.text
        or request.place
    )
    if said and not targets:
        return replace(request, jobs=last.jobs, states=last.states, group=last.group,
                       user=last.user, exclude=last.exclude, devices=last.devices,
                       setting=last.setting, **_merged(last, request))  # fmt: skip
    if not targets or said:
        return request
    devices = request.devices
    if request.verb == "book" and not {*devices} & {*last.devices}:
        devices = (*last.devices, *devices)
    return replace(request, devices=devices, options=last.options, changes=last.changes,
                   number=last.number, text=last.text, place=last.place,
                   beside=last.beside)  # fmt: skip
