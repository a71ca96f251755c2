"""Understand a request: the encoder reads it, guards refuse, and doubts become choices.

An order is always proposed on a card. Where the encoder is not sure, or a second reading is nearly
as likely, the person chooses among at most three plain sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpudeck.assistant.intents import guards, two_requests
from gpudeck.assistant.intents.callings import alternatives
from gpudeck.assistant.intents.choices import MAX_CHOICES
from gpudeck.assistant.intents.code_requests import read_code_request
from gpudeck.assistant.intents.composed import Composed, completing, compose
from gpudeck.assistant.intents.exact import exact_order
from gpudeck.assistant.intents.guards import Refusal
from gpudeck.assistant.intents.heads import head_of
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.new_jobs import new_job
from gpudeck.assistant.intents.spans import completed
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.thresholds import (
    ALONE,
    CERTAIN,
    CLEAR,
    DOUBTFUL,
    GUESSED,
    HARDLY,
    LEAST,
    LIKELY,
    LONE_ORDER,
    OFFERED,
    PLAIN,
    SURE,
)
from gpudeck.assistant.intents.values import Unknown, Unread
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.assistant.query.table import ROWS, VERBS, check
from gpudeck.assistant.reader.labels import described
from gpudeck.assistant.reader.reading import Reader, Reading
from gpudeck.language.languages import Language
from gpudeck.scheduler.protocol.errors import UserError

LONGEST_REQUEST = 2000
"""Characters; a longer text is not a request."""
ELSEWHERE = frozenset({"serve", "unserve", "download", "export", "open", "free", "notify",
                       "message", "account", "file", "shutdown", "other"})  # fmt: skip
"""Orders that are refused with the command that does them; GPUs that are named can be freed."""
_WITHOUT_TARGET = frozenset({"undo", "pause", "resume", "hold", "release"})
"""Orders that may be for the last action, or for the whole queue."""
_SHOWN = frozenset({"order report", "order export", "order open"})
"""Orders that show something, as an answer does."""
_COURTESIES = frozenset({"talk hello", "talk thanks", "talk bye"})
_LACKING: dict[tuple[str, str], guards.Problem] = {
    ("order edit", "change"): "change", ("order retry", "change"): "change",
    ("order edit", "priority"): "priority", ("order retry", "priority"): "priority",
    ("order retry", "value"): "arguments", ("order retry", "notes"): "arguments",
    ("order set", "setting"): "setting",
}  # fmt: skip
"""Why an order is refused that lacks a value for a field."""
_TARGETS = frozenset({"jobs", "group", "gpus"})
"""Fields of what a request is about."""


class Understood(NamedTuple):
    """Hold what a request asks for, and how sure that is."""

    request: Request | None
    """None if nothing was understood, or the request is refused."""
    language: Language
    also: tuple[Query, ...] = ()
    """Questions that are asked at once with `request`."""
    resolved: tuple[str, ...] = ()
    """What the request's pronouns stand for, such as `job 7`."""
    choices: tuple[Request, ...] = ()
    """What the person may choose from, the likeliest first; empty if the request is clear."""
    unread: tuple[str, ...] = ()
    """Numbers that the question leaves out, which the answer says."""
    left: tuple[tuple[str, str], ...] = ()
    """Parts of a question that have no place in it, as fields with their letters."""
    declined: str = ""
    """`talk KIND`, `order VERB`, `ask SUBJECT` or `forbidden`: why nothing answers or does it."""
    refusal: Refusal | None = None
    """Why an order is not proposed."""
    plan: bool = False
    """The effect of the order is asked for; it is not to be proposed."""
    guessed: bool = False
    """The reading is not quite certain, so the answer says what was understood."""
    exact: bool = False
    """The request is, word by word, an exact form of its order."""
    before: str = ""
    """The request with its meaning, as the reader gets them with the next one; none of talk."""
    verb: str = ""
    """The kind of order that is refused, in the words of the encoder."""
    delayed: Order | None = None
    """An order that is refused because of its time, without this time."""
    to: str = ""
    """Where news is asked for, such as `mail`."""
    begun: Order | None = None
    """A refused order that the next request may complete."""
    about: Query | None = None
    """The jobs or GPUs that an order or a refused request names, which the next one may mean."""


def understand(request: str, known: Known, state: State, now: float, reader: Reader) -> Understood:
    """Understand a request. Nothing but the person's own text is read.

    Args:
        request: The request as it was typed.
        known: The names of jobs, groups, tags and users.
        state: What the conversation is about.
        now: Seconds since the epoch.
        reader: The encoder with its heads.
    """
    if len(request) > LONGEST_REQUEST or not request.strip():
        return Understood(None, state.language)
    if (code := read_code_request(request)) is not None:
        return Understood(*code)
    reads = _Interpreter(request, known, state, now, reader)
    order = exact_order(request)
    if order is not None and not (state.jobs and order == Order(order.verb)):
        found = Understood(order, reads.language, exact=True)
    elif guards.is_secret(request):
        found = Understood(None, reads.language, declined="forbidden")
    else:
        found = reads.read()
    about = None if isinstance(found.request, Query) else reads.named()
    verb = reads.found.head.removeprefix("order ") if found.refusal is not None else ""
    return found._replace(before=reads.described(), about=about, verb=verb)


def is_unclear(found: Understood) -> bool:
    """Return whether a request would be asked back, or answered that it is not understood."""
    return bool(found.choices) or not (found.request or found.declined or found.refusal)


def understand_as(
    meant: Request, request: str, known: Known, state: State, now: float, reader: Reader
) -> Understood:
    """Return what a request asks for if it means what a language model read in it.

    An order is for what the request names or the conversation is about; the guards hold for it as
    for the encoder's readings. The other arguments are those of `understand`.
    """
    reads = _Interpreter(request, known, state, now, reader)
    found = Understood(meant, reads.language, guessed=True)
    if isinstance(meant, Order):
        found = reads.ordered(meant)._replace(about=reads.named())
    return found._replace(before=reads.described())


def _is_said(order: Order, request: str, state: State) -> bool:
    """Return whether a request or its conversation has all that an order is for."""
    spoken_of = {*map(int, re.findall(r"\d+", request)), *state.jobs, *state.devices}
    said = " ".join((*request.casefold().split(), state.group.casefold()))
    targets = (*order.jobs, *order.exclude, *order.devices, order.number, order.beside)
    texts = [one for one in (*targets, order.group, order.user, order.command, order.text)
             if isinstance(one, str)]  # fmt: skip
    return spoken_of.issuperset(one for one in targets if isinstance(one, int)) and all(
        " ".join(text.casefold().split()) in said for text in texts
    )


class _Interpreter:
    def __init__(
        self, request: str, known: Known, state: State, now: float, reader: Reader
    ) -> None:
        self.request, self.known, self.state, self.now = request, known, state, now
        self.reader = reader
        self.found = completed(request, self._read(), known)
        self.language = self.found.language_for(state.language)

    def _read(self) -> Reading:
        """Return what the encoder reads in the request and what was said before.

        A greeting or thanks alone goes on with nothing, although it may seem so behind a question.
        """
        found = self.reader.read(self.request, self.state.before)
        if not self.state.before or self.state.planned is not None or found.spans:
            return found
        alone = self.reader.read(self.request)
        courteous = alone.head in _COURTESIES and not alone.spans and alone.chance >= SURE
        return alone if courteous and not two_requests.are_asked(alone) else found

    def described(self) -> str:
        """Return the request and its meaning in the encoder's words, or an empty text for talk."""
        found = self.found
        if found.head.startswith("talk"):
            return ""
        return described(found.head, found.marks, (field for field, _ in found.spans), self.request)

    def named(self) -> Query | None:
        """Return a question about the jobs, the group or the GPUs that a request names."""
        found = self.found
        spans = [(span, place) for span, place in zip(found.spans, found.places, strict=True)
                 if span[0] in _TARGETS]  # fmt: skip
        if not spans:
            return None
        of_jobs = any(field != "gpus" for (field, _), _ in spans)
        bare = found._replace(
            heads=((f"ask {'jobs' if of_jobs else 'gpus'}", 1.0),), marks=frozenset(), second="",
            spans=tuple(span for span, _ in spans), places=tuple(place for _, place in spans),
        )  # fmt: skip
        try:
            asked = self._made(bare)[0].request
        except (Unread, UserError, ValueError, KeyError):
            return None
        return replace(asked, time=None) if isinstance(asked, Query) else None

    def read(self) -> Understood:
        """Return what the encoder reads, as far as no guard is against it."""
        found = self.found
        if two_requests.are_asked(found) and (both := self._both(found)) is not None:
            return both
        kind, _, name = found.head.partition(" ")
        if found.head == "talk yes" and found.chance >= SURE and self.state.planned is not None:
            return Understood(self.state.planned, self.language)
        doubtful = found.head in ("talk outside", "talk unclear", "order other")
        if found.chance >= (DOUBTFUL if doubtful else LIKELY) and (
            kind == "talk" or (kind == "order" and name in ELSEWHERE and not _frees_gpus(found))
        ):
            to = next((letters for field, letters in found.spans if field == "to"), "")
            said = Understood(None, self.language, declined=found.head, to=to)
            return self._unclear(found) or said
        if kind == "order" and (refusal := _conditional(found)) is not None:
            return Understood(None, self.language, refusal=refusal, delayed=self._at_once(found))
        if kind == "order" and name == "submit":
            return self._submitted(found)
        if kind == "order" and (joined_by := self._other_order(found)):
            return Understood(None, self.language, refusal=Refusal("several", (joined_by,)))
        if found.chance >= SURE and (elsewhere := _set_elsewhere(found)):
            return Understood(None, self.language, declined=f"order {elsewhere}")
        composed, lacking = self._composed(found)
        enough = SURE if composed else LIKELY
        told = self._told(found, lacking) if found.chance >= enough else None
        if told is not None or not composed:
            return self._continued(found) or told or Understood(None, self.language)
        best, alone = composed[0], len(composed) == 1
        several = not alone and composed[1].head == best.head
        goes_on = self.state.order is not None and head_of(self.state.order) == best.head
        enough = ALONE if goes_on or (alone and not isinstance(best.request, Order)) else SURE
        if alone and found.plain >= PLAIN and _is_named(best.request, found):
            enough = min(enough, LONE_ORDER)
        clear = found.chance * found.certainty >= CLEAR or found.head == "manual"
        named = _is_named(best.request, found) or _is_for_queue(best.request, found)
        clear = clear or (alone and found.chance >= CERTAIN and named)
        chance = found.chance + _chance_of_same(found, composed)
        if best.head == found.head and chance >= enough and clear and not several:
            return self._decided(found, best)
        ordered = found.head.startswith("order") and found.head not in _SHOWN
        likely = (alone and not ordered) or (best.head == found.head and found.chance >= GUESSED)
        if likely and all(isinstance(one.request, Query) for one in composed):
            # An answer changes nothing, and says how the question was read.
            return self._decided(found, best)._replace(guessed=True)
        return self._chosen_from(found, composed)

    def _chosen_from(self, found: Reading, composed: list[Composed]) -> Understood:
        """Return what the person may choose from, without orders that are hardly meant.

        Of questions the likeliest is answered: that changes nothing, and says how it was read. But
        where an order was spoken of, the next request may be about it.
        """
        offered = self._offered(found, [one.request for one in composed])
        chances = dict(found.heads)
        unlikely = [one.request for one in composed
                    if isinstance(one.request, Order) and chances[one.head] < OFFERED]  # fmt: skip
        kept = tuple(one for one in offered.choices if one not in unlikely)
        asks = all(isinstance(one, Query) for one in kept)
        if kept and asks and _is_telling(kept[0]) and self.state.order is None:
            best = next(one for one in composed if one.request == kept[0])
            return self._decided(found, best)._replace(guessed=True)
        return offered._replace(choices=kept)

    def ordered(self, order: Order) -> Understood:
        """Return an order of a language model, or what speaks against it.

        It is for what the request says: a model may invent a job, and so may not choose all jobs in
        a state that the encoder does not find in the request.
        """
        states = {f"states={state}" for state in order.states}
        if not (_is_said(order, self.request, self.state) and states <= self.found.marks):
            return Understood(None, self.language, refusal=Refusal("target"))
        against = self._against(self.found, order) or _conditional(self.found)
        if guards.parted(self.request, self.found):
            against = against or Refusal("several")
        if against is not None:
            return Understood(None, self.language, refusal=against)
        supposed = guards.is_supposed(self.request, self.found)
        return Understood(order, self.language, plan=supposed, guessed=True)

    def _unclear(self, found: Reading) -> Understood | None:
        """Return what an unclear request may mean, however unlikely, if it names a job."""
        if found.head != "talk unclear":
            return None
        named = completed(self.request, found._replace(heads=(("order move", 1.0),)), self.known)
        if not any(field == "jobs" for field, _ in named.spans):
            return None
        heads = (*found.heads[1:], ("ask jobs", LEAST))
        made, _ = self._composed(named._replace(heads=heads), HARDLY)
        offered = self._offered(found, [one.request for one in made])
        return offered if offered.choices else None

    def _told(self, found: Reading, lacking: Unread | None) -> Understood | None:
        """Return why a request whose kind is sure can't be answered or carried out."""
        if isinstance(lacking, Unknown):
            return Understood(None, self.language, declined=f"ask {str(lacking).partition(',')[0]}")
        if lacking is not None and found.head.startswith("ask"):
            return Understood(None, self.language, declined="talk unclear")
        if lacking is None or not found.head.startswith("order"):
            return None
        words = (str(lacking),) if str(lacking) and str(lacking) in self.request else ()
        field = next((field for field, letters in found.spans if letters in words), str(lacking))
        problem = _LACKING.get((found.head, field), "unread" if words else "target")
        return Understood(None, self.language, refusal=Refusal(problem, words))

    def _offered(self, found: Reading, requests: list[Request]) -> Understood:
        """Return what the person may choose from, without orders that a guard is against.

        What an order would do is told, and never offered to be done. Where a guard is against one
        order, no less likely one is offered in its place.
        """
        if guards.is_supposed(self.request, found):
            if requests and isinstance(requests[0], Order):
                return Understood(requests[0], self.language, plan=True, guessed=True)
            requests = [one for one in requests if not isinstance(one, Order)]
        kept: list[Request] = []
        refusal: Refusal | None = None
        for one in requests:
            if isinstance(one, Order):
                refusal = refusal or self._against_offering(found, one)
            if not (isinstance(one, Order) and refusal) and one not in kept:
                kept.append(one)
        if kept:
            return Understood(None, self.language, choices=tuple(kept[:MAX_CHOICES]))
        return Understood(None, self.language, refusal=refusal)

    def _against_offering(self, found: Reading, order: Order) -> Refusal | None:
        """Return what speaks against an order as a choice, which has to say what it is for."""
        users = {user.casefold() for user in (*self.known.users, self.known.me)}
        stranger = bool(order.user) and order.user.casefold() not in users
        if stranger or (order == Order(order.verb) and order.verb not in _WITHOUT_TARGET):
            return Refusal("target")
        return self._against(found, order)

    def _against(self, found: Reading, order: Order) -> Refusal | None:
        if _lacks_target(order) and not guards.points(found):
            return Refusal("target")
        return guards.against(self.request, found, order, self.known, self.now)

    def _decided(self, found: Reading, best: Composed) -> Understood:
        """Return a question to answer, or an order with what speaks against it."""
        if not isinstance(best.request, Order):
            whole = best.head in ("manual", "ask backend")  # they read the request themselves
            left_out = () if whole else guards.numbers(self.request, found)
            lost = (
                (("second", "@second"),) if two_requests.are_asked(found) and not best.also else ()
            )
            return Understood(best.request, self.language, best.also, best.resolved,
                              guessed=found.chance < CERTAIN, unread=left_out,
                              left=(*best.left, *lost))  # fmt: skip
        if guards.is_supposed(self.request, found):
            return Understood(best.request, self.language, resolved=best.resolved, plan=True)
        against = self._against(found, best.request)
        if against is not None:
            delayed = best.request if against.problem == "time" else None
            return Understood(None, self.language, refusal=against, delayed=delayed)
        return Understood(best.request, self.language, resolved=best.resolved)

    def _at_once(self, found: Reading) -> Order | None:
        """Return the order of a reading without its time and its condition, or None."""
        kept = [part for part in zip(found.spans, found.places, strict=True)
                if part[0][0] not in ("at", "if")]  # fmt: skip
        bare = found._replace(spans=tuple(span for span, _ in kept),
                              places=tuple(place for _, place in kept))  # fmt: skip
        made = [one.request for one in self._composed(bare)[0] if one.head == found.head]
        return made[0] if len(made) == 1 and isinstance(made[0], Order) else None

    def _composed(
        self, found: Reading, least: float = LEAST
    ) -> tuple[list[Composed], Unread | None]:
        """Return the requests that may be meant, the likeliest first, and what the first lacks."""
        made: list[Composed] = []
        lacking: Unread | None = None
        for head, chance in found.heads:
            if chance < least or head.startswith("talk"):
                continue
            for reading in alternatives(
                found._replace(heads=((head, chance),)), self.known, self.request
            ):
                try:
                    made += self._made(reading)
                except Unread as unread:
                    lacking = unread if head == found.head else lacking
                except (UserError, ValueError, KeyError):
                    continue
        kept: dict[str, Composed] = {}
        for one in made:  # two kinds may be the same question
            kept.setdefault(repr((one.request, one.also)), one)
        return [*kept.values()], lacking

    def _made(self, found: Reading) -> list[Composed]:
        """Return the requests of a reading: one, or one for each job that `it` may stand for.

        Raises what `compose` and `check` raise.
        """
        one = compose(found, found.head, self.known, self.state, self.now, self.request)
        one = one._replace(request=completing(one.request, self.state))
        for asked in (one.request, *one.also):
            if isinstance(asked, Query):
                check(asked)
        return self._which(found, one) or [one]

    def _continued(self, found: Reading) -> Understood | None:
        """Return the last request with the parts of this one, which says only what is other.

        What is likely an order is no other form of a question.
        """
        last = self.state.order or self.state.last
        orders = found.head.startswith("order") and found.chance >= LIKELY
        if last is None or not found.spans or (orders and isinstance(last, Query)):
            return None
        again = completed(self.request, found._replace(heads=((head_of(last), 1.0),)), self.known)
        try:
            each = alternatives(again, self.known, self.request)
            made = [one for reading in each for one in self._made(reading)]
        except (Unread, UserError, ValueError, KeyError):
            return None
        if isinstance(last, Query):
            made = [one._replace(request=replace(one.request, measure=last.measure))
                    for one in made if isinstance(one.request, Query)]  # fmt: skip
        made = [one for one in made if one.request != last]
        if len(made) != 1:
            return self._offered(again, [one.request for one in made]) if made else None
        return self._decided(again._replace(heads=((found.head, found.chance),)), made[0])

    def _which(self, found: Reading, one: Composed) -> list[Composed]:
        """Return an order for each job that `it` may stand for, if several were spoken of.

        So there is one for each part of a sentence that names other targets, the last one first.
        """
        if not isinstance(one.request, Order):
            return []
        parts = guards.parted(self.request, found)
        if parts and (apart := self._apart(found, one.request, parts)):
            return [one._replace(request=order, resolved=()) for order in reversed(apart)]
        points = {"jobs=@it", "jobs=@them"} & found.marks == {"jobs=@it"} and not any(
            name == "jobs" for name, _ in found.spans
        )
        if not points or len(self.state.jobs) < 2:
            return []
        return [one._replace(request=replace(one.request, jobs=(job,)), resolved=())
                for job in self.state.jobs[:MAX_CHOICES]]  # fmt: skip

    def _apart(
        self, found: Reading, order: Order, parts: Sequence[Sequence[guards.Span]]
    ) -> list[Order]:
        """Return an order for the targets of each part alone; none where one field has them."""
        made = []
        for part in parts:
            others = {span for other in parts if other is not part for span in other}
            kept = [(span, place) for span, place in zip(found.spans, found.places, strict=True)
                    if span not in others]  # fmt: skip
            reading = found._replace(spans=tuple(span for span, _ in kept),
                                     places=tuple(place for _, place in kept))  # fmt: skip
            alone = compose(reading, found.head, self.known, self.state, self.now, self.request)
            assert isinstance(alone.request, Order)
            made.append(replace(order, jobs=alone.request.jobs, devices=alone.request.devices))
        different = {(each.jobs, each.devices) for each in made}
        return made if len(different) > 1 else []

    def _submitted(self, found: Reading) -> Understood:
        """Return an order for a new job with its options."""
        order = new_job(self.request, found, self.known, self.state, self.now)
        if isinstance(order, Refusal):
            return Understood(None, self.language, refusal=order)
        if not (order.command or order.workload):
            return Understood(None, self.language, refusal=Refusal("lacking"), begun=order)
        order = _continuing(order, self.state.order)
        against = guards.against(self.request, found, order, self.known, self.now)
        if against is not None:
            return Understood(None, self.language, refusal=against)
        if found.chance < CERTAIN:  # a question about a command has its letters, too
            others, _ = self._composed(found._replace(heads=found.heads[1:]), HARDLY)
            return self._offered(found, [*(one.request for one in others), order])
        return Understood(order, self.language, plan=guards.is_supposed(self.request, found))

    def _both(self, found: Reading) -> Understood | None:
        """Return two questions that are asked at once, or why two orders are not proposed."""
        cut = two_requests.halves(self.request, (found.head, found.second), self._side)
        if cut is not None:
            first, second, joined_by = cut
            both = two_requests.together(first, second, shares=False)
            if both is None:
                return Understood(None, self.language, refusal=Refusal("several", (joined_by,)))
            return self._asked(both)
        try:
            made = [self._made(each)[0] for each in two_requests.undivided(found)]
        except (Unread, UserError, ValueError, KeyError):
            return None
        both = two_requests.together(made[0], made[1], shares=True) if made else None
        return self._asked(both) if both is not None else None

    def _other_order(self, found: Reading) -> str:
        """Return what joins another kind of order for other targets, or an empty text."""
        if not guards.parted(self.request, found):
            return ""
        cut = two_requests.halves(self.request, (found.head,), self._side)
        orders = [half.request for half in cut[:2]] if cut is not None else []
        verbs = {order.verb for order in orders if isinstance(order, Order)}
        return cut[2] if cut is not None and len(verbs) > 1 else ""

    def _asked(self, made: Composed) -> Understood:
        return Understood(made.request, self.language, made.also, made.resolved, left=made.left)

    def _side(self, text: str) -> Composed | None:
        side = _Interpreter(text, self.known, self.state, self.now, self.reader)
        composed, _ = side._composed(side.found)
        return composed[0] if composed else None


def _is_telling(request: Request) -> bool:
    """Return whether a question says more than of what it is; all jobs or all GPUs, or a section of
    the manual, hardly answer what was not understood well."""
    return (
        isinstance(request, Query)
        and request.subject in ROWS
        and replace(request, time=None, by="") != Query(request.subject)
    )


def _continuing(order: Order, last: Order | None) -> Order:
    """Return an order for a new job with what was said before of one that had no command yet."""
    if last is None or last.verb != "submit" or last.command or last.workload:
        return order
    return replace(order, options=last.options | order.options)


def _conditional(found: Reading) -> Refusal | None:
    """Return why an order is refused that shall be carried out later, or on a condition."""
    for field, problem in (("if", "condition"), ("at", "time")):
        words = tuple(letters for name, letters in found.spans if name == field)
        takes = {"order submit"} | ({"order resume"} if field == "at" else set())
        if words and "what_if=yes" not in found.marks and found.head not in takes:
            return Refusal(problem, words)  # type: ignore[arg-type]
    return None


def _is_named(request: Request, found: Reading) -> bool:
    """Return whether an order says by number or name which jobs or GPUs it is for."""
    named = isinstance(request, Order) and bool(request.jobs or request.devices)
    return named and not any("=@" in mark for mark in found.marks)


def _is_for_queue(request: Request, found: Reading) -> bool:
    """Return whether an order for now says that it is for the queue, or for a group by its name."""
    if not isinstance(request, Order) or found.plain < PLAIN:
        return False
    named = any(field == "group" for field, _ in found.spans) or "queue=yes" in found.marks
    return named and not (request.jobs or request.devices or any("=@" in m for m in found.marks))


def _frees_gpus(found: Reading) -> bool:
    """Return whether GPUs shall be freed; a program is not taken off its GPU here."""
    pointed = any(mark.startswith("gpus=") for mark in found.marks)
    return found.head == "order free" and (
        pointed or any(field == "gpus" for field, _ in found.spans)
    )


def _chance_of_same(found: Reading, composed: Sequence[Composed]) -> float:
    """Return the chance of a second order that keeps the same GPUs free from now on.

    A booking lets their jobs go on, and says how they are suspended.
    """
    match [one.request for one in composed[:2]]:
        case [Order() as one, Order() as other]:
            same = one.devices == other.devices and one.options == other.options
            if {one.verb, other.verb} == {"book", "free"} and same and "begin" not in one.options:
                return dict(found.heads)[composed[1].head]
    return 0.0


def _set_elsewhere(found: Reading) -> str:
    """Return what is no setting and no group's limit, but shall be set: `power`, `limits` or ""."""
    fields = {field for field, _ in found.spans} | {mark.partition("=")[0] for mark in found.marks}
    if found.head == "order limit" and "user" in fields:
        return "limits"
    return "power" if found.head == "order set" and {"gpus", "value"} <= fields else ""


def _lacks_target(order: Order) -> bool:
    """Return whether nothing says what an order is for, or what an edit changes."""
    if order.verb == "edit" and not (order.options or order.changes):
        return True
    if order.verb == "free" and not order.devices:
        return True
    for_jobs = "jobs" in VERBS[order.verb].takes
    return for_jobs and not (order.jobs or order.states or order.group or order.user)
