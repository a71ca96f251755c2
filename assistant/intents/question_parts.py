"""Read the parts that questions have besides those of orders: GPUs by name, units, prices, times to
come, and groups."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.moments import ARTICLES, is_to_come, number_word, span_ahead
from gpudeck.assistant.intents.names import Known, is_word, named
from gpudeck.assistant.intents.prices import price_of
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import tokens, unaccented, unit_of
from gpudeck.assistant.intents.values import NOW, Unread, Values, numbers_in
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import COST, Query, Target
from gpudeck.assistant.query.table import SUBJECTS
from gpudeck.assistant.reader import labels
from gpudeck.assistant.reader.reading import Reading

OWNERS, PERIODS = frozenset({"user", "name", "group"}), frozenset({"day", "hour"})
"""What jobs are grouped by, and what values over a time are, too."""
_TOGETHER = re.compile(r"(?i),|\b(?:and|und|et|y|e|or|oder|ou|o|vs|versus|contra|contre|gegen)\b")
"""What stands between the names of users."""
_ANY_CARD = re.compile(
    r"(?:(?:the|my|our|die|der|das|la|le|les|las|los|el|un|una|une|ein|eine|a|an|all|alle|toda?s"
    r"|both|beiden?|ma|mi|mes|mis|meine?|this|diese[rn]?|one|eine[rn]?) ?)*"
    r"(?:gpus?|cards?|(?:grafik)?karten?|kartn|cartes?|tarjetas?|graficas?|graphics cards?|placas?"
    r"|machine|maschine|maquina|rechner|box|pc)?(?: [a-z]+grafica)?"
)
"""Words for a GPU that name none."""
CURRENCY = re.compile(
    r"(?i)[€$£¥]|\b(?:euros?|eur|dollars?|usd|chf|franken|francs?|pesos?|soles|pounds?|gbp|naira)\b"
)


_JOB_NOUN = r"\b(?:job|run|number|nummer|nr|num[ée]ro|n[úu]mero|travail|trabajo|auftrag)"
_OF_KIND: dict[str, dict[str, str]] = {
    "devices": {"temperature": "temp", "power": "power", "size": "mem_used"},
    "jobs": {"time": "duration", "energy": "energy", "size": "memory"},
}
"""The measure that is bounded by a quantity of a kind."""


class QuestionParts(Values):
    """Read the parts of a question. What has no value here is told with the answer."""

    def __init__(self, found: Reading, known: Known, state: State, now: float, text: str) -> None:
        super().__init__(found, known, state, now, text)
        self.subject = ""
        self.lacking: list[tuple[str, str]] = []
        """Parts that have no value here, as fields with their marks."""

    def _named(self, letters: str) -> list[Target]:
        """Return the jobs of a name; an answer says that there is no job of an unknown one.

        A number in words behind a word for jobs is that of one: `job ten`, but not `the two last`.
        """
        number = number_word(letters)
        if number is not None and re.search(
            rf"(?i){_JOB_NOUN}\W+{re.escape(letters)}\b", self.text
        ):
            return [number]
        try:
            return super()._named(letters)
        except Unread:
            return [letters]

    def known_jobs(self, jobs: tuple[Target, ...]) -> tuple[Target, ...]:
        """Return jobs without the names that no job has, where something else says which are
        meant: other jobs, a user, a group or GPUs. The answer tells that it left them out."""
        strange = [job for job in jobs if isinstance(job, str) and not named(job, self.known.jobs)]
        rest = tuple(job for job in jobs if job not in strange)
        narrowed = ("user", "group", "gpus", "tag")
        if not self.known.jobs or not (rest or any(map(self.letters, narrowed))):
            return jobs
        self.lacking += [("jobs", str(job)) for job in strange]
        return rest

    def jobs_of_model(self) -> tuple[Target, ...]:
        """Return the job that is called by the size or name of its model: `ben's 70b`."""
        said = [one.casefold().strip() for one in self.letters("model")]
        names = {
            name
            for name in self.known.active or self.known.jobs
            if any(is_word(word, name.replace("-", " ").casefold()) for word in said if word)
        }
        return tuple(names) if len(names) == 1 else ()

    def _field_of(self, field: str, letters: str) -> str:
        """Return the field of letters: a time that is still to come is no past one, and what is
        asked of jobs about the number of no GPU is about that job."""
        if field == "time" and is_to_come(letters, self.now):
            return "ahead"
        no_gpu = letters.strip().isdecimal() and 0 < self.known.gpus <= int(letters)
        return "jobs" if field == "gpus" and no_gpu and self.subject == "jobs" else field

    def _pointed(self, mark: str) -> list[Target]:
        """Return the jobs that are pointed to; without any, the answer says so."""
        try:
            return super()._pointed(mark)
        except Unread:
            self.lacking.append(("jobs", mark))
            return []

    def measures(self, table: dict[str, str]) -> list[str]:
        """Return the measures that are asked for; an answer says that some are not measured."""
        found = super().measures(table)
        known = labels.SUBJECTS.get(self.subject, ())
        self.lacking += [("measure", name) for name in self.marked("measure")
                         if (name in known and name not in table) or name == "other"]  # fmt: skip
        return found

    def user(self) -> str:
        """Return the user who is named, or several with commas between them."""
        letters = self.letters("user")
        said = [one for each in letters for one in _TOGETHER.split(each) if one.strip()]
        if who := self.introduced():
            return who
        people = [named(one.strip(), self.known.users) for one in said]
        if letters and self.known.me and "@me" in self.marked("user"):
            people.append(self.known.me)
        if len(people) > 1 and all(people):
            return ",".join(dict.fromkeys(filter(None, people)))
        return super().user()

    def says_nothing(self, field: str, words: str) -> bool:
        """Return whether a part asks for nothing else: now, any GPU, one, or what was so before."""
        if field in ("time", "time2"):
            return NOW.fullmatch(words) is not None
        if field == "gpus" and words.startswith("@"):
            return words != "@others" and not self.state.devices  # the card is any card
        if field == "gpus":
            return _ANY_CARD.fullmatch(unaccented(words.casefold())) is not None
        if field == "to" and self.subject == "conversion":
            return True
        if field == "by":
            return words == "gpu" and self.subject == "gpus"  # each has a row
        if field == "compare" and words == "before" and self.letters("time2"):
            return True
        if field == "compare" and words == "others" and "before" in self.marked("compare"):
            return True  # it is compared with before
        if field == "compare":
            sides = self.letters("jobs") or self.letters("gpus")
            return words == "each" and len(sides) != 1
        if field == "user":  # a table of all users has a row for each
            ranked = self.subject == "users" and (self.marked("compare") or self.marked("which"))
            return words == "@me" and bool(ranked or not self.known.me)
        if field == "when":
            told = self.subject in ("capacity", "bookings", "actions", "alerts", "jobs")
            return told or "uptime" in self.marked("measure")
        return field == "count" and words.casefold() in ARTICLES

    def _bounded(self, query: Query, field: str) -> str:
        """Return the measure that a bound is of: one with its unit, if that asked for has not."""
        token = next((t for t in tokens(self.letters(field)[0]) if t.kind == "quantity"), None)
        kind = kind_of(token.unit) if token is not None else ""
        own = SUBJECTS[query.subject].measures[query.measure].unit
        if not kind or kind == kind_of(own):
            return query.measure
        return _OF_KIND[query.subject].get(kind, query.measure)

    def _bound(self, query: Query, field: str) -> float:
        letters = self.letters(field)[0]
        token = next((t for t in tokens(letters) if t.kind in ("number", "quantity")), None)
        if token is None:
            raise Unread(letters)
        unit = SUBJECTS[query.subject].measures[query.measure].unit
        if token.unit and kind_of(token.unit) and kind_of(token.unit) == kind_of(unit):
            return convert(token.value, token.unit, unit)
        return convert(token.value, "GB", "B") if unit == "B" else token.value

    def _cards(self) -> tuple[tuple[int, ...], str]:
        """Return the GPUs that are named by a number or a place, or words of their names."""
        devices, letters = self.devices(), (*self.letters("gpus"), *self.letters("gpu_type"))
        words = [one for one in letters if not _ANY_CARD.fullmatch(unaccented(one.casefold()))]
        return devices, "" if devices or not words else words[0]

    def _excluded(self) -> tuple[int, ...]:
        """Return the GPUs that are left out: the others are asked for, or all but some."""
        if "@others" in self.marked("gpus"):
            return self.state.devices
        found = [n for letters in self.letters("except") for n in numbers_in(tokens(letters))]
        if self.letters("except") and not found:
            raise Unread(self.letters("except")[0])
        return tuple(found)

    def _by(self, subject: str) -> str:
        """Return what rows are grouped by, as far as the subject has such groups."""
        known = OWNERS | PERIODS if subject == "jobs" else PERIODS
        return next((by for by in self.marked("by") if by in known), "")

    def _unit_of(self, measure: str) -> str:
        """Return the unit in which a measure is asked for; empty if it has no such unit."""
        units = [unit_of(unaccented(t.norm)) for t in tokens(" ".join(self.letters("to")))]
        unit = next(filter(None, units), "")
        own = SUBJECTS["devices"].measures[measure].unit if measure else ""
        return unit if unit and kind_of(unit) == kind_of(own) else ""

    def _currency(self) -> str:
        """Return the currency that is said with a price, or in which a cost is asked for."""
        said = self.letters("to") or CURRENCY.findall(" ".join(self.letters("price")))
        last = self.state.last
        before = last.unit if last is not None and COST in (last.text, last.to) else ""
        return said[0] if said else before

    def _coming(self) -> tuple[float, float]:
        """Return the begin and the end of the time to come. Raises Unread if it is none."""
        letters = " ".join((*self.letters("ahead"), *self.letters("begin")))
        if NOW.fullmatch(letters):
            return self.now, self.now
        found = span_ahead(letters, self.now)
        if found is None:
            raise Unread(letters)
        return found

    def _price(self) -> float:
        """Return the price of a kWh that is said, now or in the question before; 0: none."""
        if letters := self.letters("price"):
            price = price_of(letters[0])
            if price is None:
                raise Unread(letters[0])
            return price
        last = self.state.last
        return last.amount if last is not None and COST in (last.text, last.to) else 0.0
