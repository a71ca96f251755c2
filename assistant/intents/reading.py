"""Read what all questions have: jobs, devices, states, times, aggregates, limits and bounds."""

from __future__ import annotations

from gpudeck.assistant.intents.setting_words import setting_phrases
from gpudeck.assistant.intents.spots import Spot, Spots
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import Token
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import NEWEST, Span, Target, Where
from gpudeck.assistant.query.table import SUBJECTS

JOB_MEASURES = {
    "mem_used": "memory",
    "power": "energy",
    "energy": "energy",
    "util": "util",
    "tflops": "tflops",
}
JOB_STATES = {
    "running": ("running", "starting"),
    "queued": ("queued",),
    "failed": ("failed", "lost", "rejected"),
    "done": ("done", "rejected"),
    "cancelled": ("cancelled",),
    "lost": ("lost",),
    "ended": ("done", "rejected", "failed", "cancelled", "lost"),
    "held": ("queued",),
}
ACTIVE = ("queued", "starting", "running")


class QueryReader:
    """Read one question."""

    def __init__(self, spots: Spots, state: State) -> None:
        self.s, self.state = spots, state
        self.resolved: list[str] = []

    # ---- targets

    def jobs(self) -> tuple[Target, ...]:
        """Return the jobs that are named, or that a pronoun stands for."""
        s = self.s
        if s.targets["job"]:
            return tuple(dict.fromkeys(s.targets["job"]))
        ordinal = s.find("ordinal")
        noun = s.find("noun", "job")
        if ordinal is not None and (noun is None or noun.first - ordinal.last in (1, 2, 3)):
            number = int(ordinal.value("ordinal"))
            near_states = any(spot.means("state") for spot in s.spots)
            if "job" in s.counts:
                return ()
            if number == -1 and not self.state.jobs and not near_states:
                s.use(ordinal)
                return (NEWEST,)
            if self.state.jobs and abs(number) <= len(self.state.jobs) and noun is None:
                s.use(ordinal)
                job = self.state.jobs[number - 1 if number > 0 else number]
                self._resolve(job)
                return (job,)
            if number == -1 and not near_states and "job" not in s.counts:
                s.use(ordinal)
                return (NEWEST,)
        return self.pronoun_jobs()

    def pronoun_jobs(self) -> tuple[Target, ...]:
        """Return the jobs that `it` or `them` stand for."""
        pron = self.s.find("pron", "them") or self.s.find("pron", "it")
        if pron is None or self.state.about != "job" or not self.state.jobs:
            return ()
        self.s.use(pron)
        many = pron.means("pron", "them") and not pron.means("pron", "it")
        found = self.state.jobs if many else self.state.jobs[:1]
        for job in found:
            self._resolve(job)
        return found

    def spoken_of(self) -> tuple[Target, ...]:
        """Return the job that the last answer was about, for a question that names none."""
        s = self.s
        if self.state.about != "job" or not self.state.jobs or s.find("noun") or s.find("all"):
            return ()
        if s.find("pron", "it"):
            s.has("pron", "it")
        self._resolve(self.state.jobs[0])
        return self.state.jobs[:1]

    def _resolve(self, job: int) -> None:
        self.resolved.append(f"job {job}")

    def devices(self) -> tuple[int, ...]:
        """Return the GPUs that are named, or that a pronoun stands for."""
        named = [target for target in self.s.targets["device"] if isinstance(target, int)]
        if named:
            return tuple(dict.fromkeys(named))
        pron = self.s.find("pron", "it") or self.s.find("pron", "them")
        if pron is not None and self.state.about == "device" and self.state.devices:
            self.s.use(pron)
            self.resolved += [f"GPU {index}" for index in self.state.devices]
            return self.state.devices
        if pron is not None and self.s.find("pron", "same") is None:
            self.s.use(pron)  # "how hot is it": the machine
        return ()

    def time(self) -> Span | None:
        """Return the time that is named."""
        found = self.s.use_time()
        return found.span if found is not None else None

    def aggregate(self) -> tuple[str, str, bool]:
        """Return the aggregate, the measure of a superlative, and whether a winner is asked for."""
        s = self.s
        spot = next((x for x in s.spots if x.means("super")), None)
        if spot is not None:
            measure, _, extreme = spot.value("super").rpartition(" ")
            for other in s.spots:
                if other.means("super"):
                    s.use(other)
            measure = measure.strip("-")
            asked = any(t.norm in _WHICH for t in s.tokens[: spot.first]) and s.find("noun")
            winner = bool(asked) or bool(measure) or s.find("ask", "who") is not None
            return extreme, measure, winner and not s.targets["job"]
        found = next((x for x in s.spots if x.means("agg") and x.value("agg") != "count"), None)
        found = found or s.find("agg")
        if found is None:
            return "", "", False
        value = found.value("agg")
        s.has("agg")
        return value, "", False

    def limit(self) -> int:
        """Return the N of `top 3` or `last 5 jobs`."""
        for noun in ("job", "device", "process", "alert"):
            if noun in self.s.counts and (self.s.find("super") or self.s.find("ordinal")):
                self.s.use_count(noun)
                return self.s.counts[noun]
        loose = self.s.loose(("number",))
        places = [
            place
            for spot in (self.s.find("super"), self.s.find("ordinal"))
            if spot is not None
            for place in (spot.first - 1, spot.last + 1)
        ]
        if loose and loose[0] in places:
            self.s.used.add(loose[0])
            return int(self.s.tokens[loose[0]].value)
        return 0

    def bounds(self, measure: str, subject: str = "devices") -> tuple[Where, ...]:
        """Return the bound of `above 80 °C`, in the unit of the measure."""
        found = self.bound()
        if found is None:
            return ()
        spot, place = found
        self.s.use(spot)
        self.s.used.add(place)
        value = in_unit(self.s.tokens[place], SUBJECTS[subject].measures[measure].unit)
        above = spot.means("bound", "above")
        return (Where(measure, value if above else None, None if above else value),)

    def bound(self) -> tuple[Spot, int] | None:
        """Return the words of a bound and the place of its number."""
        spot = self.s.find("bound")
        loose = [i for i in self.s.loose(("number", "quantity")) if spot and i > spot.last]
        if spot is None or not loose or loose[0] - spot.last > 2:
            return None
        return spot, loose[0]

    def lone_job(self) -> tuple[Target, ...]:
        """Return the job that a number without a noun stands for, as in `why did 12 fail`."""
        loose = [i for i in self.s.loose(("number",)) if "." not in self.s.tokens[i].norm]
        if len(loose) != 1 or self.s.find("noun", "device") or self.s.counts:
            return ()
        self.s.used.add(loose[0])
        return (int(self.s.tokens[loose[0]].value),)


_WHICH = frozenset({"which", "what", "welche", "welcher", "welches", "welchen", "quel", "quelle",
                    "quels", "quelles", "que", "cual", "cuales"})  # fmt: skip


def in_unit(token: Token, unit: str) -> float:
    """Return the value of a token in a unit; without a unit of its kind it is in that unit."""
    if token.unit and kind_of(token.unit) and kind_of(token.unit) == kind_of(unit):
        return convert(token.value, token.unit, unit)
    return token.value


def states(r: QueryReader) -> tuple[str, ...]:
    return r.s.states(JOB_STATES)


def named_setting(s: Spots) -> str:
    """Return the setting that is named, or an empty text."""
    return _place_of_setting(s)[0]


def find_setting(s: Spots) -> str:
    """Return the setting that is named, and count its words as used."""
    name, words = _place_of_setting(s)
    s.used.update(words)
    return name


def _place_of_setting(s: Spots) -> tuple[str, range]:
    norms = [token.norm for token in s.tokens]
    for phrase, name in sorted(setting_phrases().items(), key=lambda pair: -len(pair[0])):
        for i in range(len(norms) - len(phrase) + 1):
            if tuple(norms[i : i + len(phrase)]) == phrase:
                return name, range(i, i + len(phrase))
    return "", range(0)
