"""Read an order, or refuse it where a word of it has no place in what the verb takes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from gpudeck.accel.workloads import catalog
from gpudeck.assistant.intents.option_phrases import find_options
from gpudeck.assistant.intents.reading import ACTIVE, find_setting, named_setting
from gpudeck.assistant.intents.setting_words import value_of
from gpudeck.assistant.intents.spots import MOST, RANGE, Spot, Spots
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.submission import read_submission
from gpudeck.assistant.intents.workload_phrases import read_parameters
from gpudeck.assistant.query.request import NEWEST, Order, Target
from gpudeck.assistant.query.setting_units import in_setting_unit
from gpudeck.assistant.query.table import HELD, VERBS, WORKLOADS

_STATES = {
    "running": ("running", "starting"), "queued": ("queued",), "held": (HELD,),
    "failed": ("failed", "lost"), "done": ("done",), "cancelled": ("cancelled",), "lost": ("lost",),
}  # fmt: skip
_BUT = re.compile(r"(?i)\b(?:but |aber |mais |pero )?(?:with|mit|avec|con|and|und|et|y)?\s*(?=,|$)")
_SOFTENERS = frozenset({"please", "pls", "bitte", "favor", "plait", "now", "jetzt", "maintenant",
                        "ahora", "just", "kindly", "then", "ok", "okay", "so", "hey", "well",
                        "actually", "finally", "anyway", "finalement", "enfin", "eigentlich",
                        "schliesslich", "finalmente", "bueno", "vale", "pues", "oh", "ah",
                        "alors", "donc", "also", "nun", "go", "ahead", "mal", "doch", "por", "s",
                        "il", "te", "vous"})  # fmt: skip

_MACHINE = frozenset({"machine", "computer", "server", "box", "pc", "maschine", "rechner",
                      "ordinateur", "serveur", "maquina", "ordenador", "servidor",
                      "equipo"})  # fmt: skip
_TAKES_BACK = frozenset({"release", "resume", "undrain"})
_AGAIN = frozenset({"again", "wieder", "erneut", "de nouveau", "a nouveau", "de nuevo",
                    "otra vez"})  # fmt: skip

Problem = Literal["unread", "command", "forbidden", "condition", "time", "several", "pronoun"]


class OrderReading(NamedTuple):
    """Hold an order, or why there is none though the request has the words of one."""

    order: Order | None
    problem: Problem | None = None
    words: tuple[str, ...] = ()
    """The words that the order has no place for."""
    verb: str = ""
    resolved: tuple[str, ...] = ()


def read_command(s: Spots) -> OrderReading | None:
    """Return the order for a new job that names its program, or None if that is not sure.

    Words without a place refuse it if the request begins with an order for a new job; otherwise
    they may make it something else, such as a question.
    """
    found = read_submission(s.request, s.known.jobs, s.now)
    if not found.command or s.find("verb", "submit") is None:
        return None
    if not found.unread:
        order = Order("submit", command=found.command, options=found.options)
        return OrderReading(order, verb="submit")
    first = next((x for x in s.spots if not x.means("polite") and not _soft(s, x)), None)
    if first is None or not first.means("verb", "submit") or s.question:
        return None
    return OrderReading(None, "command", found.unread, "submit")


def read_order(s: Spots, state: State) -> OrderReading | None:
    """Return the order that a request is, or None if it is a question."""
    verb = _verb(s)
    if verb is None:
        return None
    if verb[1] == "retry":
        return _read_retry(s, state)
    return _Reader(s, state, *verb).read()


def _read_retry(s: Spots, state: State) -> OrderReading | None:
    """Return an order to run jobs again, with what shall be different: `but with 24 GB`."""
    found = find_options(s.request, s.known.jobs, s.now)
    rest = Spots(_BUT.sub(" ", found.rest), s.known, s.now) if found.options else s
    verb = _verb(rest)
    if verb is None:
        return None
    reading = _Reader(rest, state, *verb).read()
    if reading.order is None or not found.options or reading.verb != "retry":
        return reading
    options = dict(found.options)
    return reading._replace(order=msgspec.structs.replace(reading.order, options=options))


def _verb(s: Spots) -> tuple[Spot, str] | None:
    """Return the verb of an imperative; None for questions and statements."""
    about_job = bool(s.targets["job"]) or s.find("noun", "job") is not None
    if (without := _without_verb(s)) is not None:
        return without
    verbs = [spot for spot in s.spots
             if spot.means("verb") and (about_job or not spot.means("topic", "clean"))]  # fmt: skip
    if not verbs:
        return None
    polite = s.find("polite") is not None
    compares = s.find("compare") is not None and not s.find("verb", "retry")
    if s.find("ask") is not None or compares or (s.question and not polite):
        return None
    first = next(
        (spot for spot in s.spots if not spot.means("polite") and not _soft(s, spot)), None
    )
    opening = first is not None and first.means("verb")
    negated = first is not None and first.means("not")
    kept = s.find("except")
    end = kept.first if kept is not None and kept.first > verbs[-1].last else len(s.tokens)
    closing = verbs[-1].last >= end - 1 - (_trailing(s) if end == len(s.tokens) else 0)
    targeted = bool(
        s.find("noun", "queue") or s.targets["job"] or s.targets["device"] or s.targets["process"]
        or s.groups or s.find("all") or (s.find("noun", "job") and s.find("ordinal"))
    )  # fmt: skip
    starts_with_target = bool(s.tokens) and not any(
        t.norm in ("is", "was", "are", "did", "has", "war", "ist", "est", "fue")
        for t in s.tokens[:1]
    )
    again = s.targets["job"] and s.find("verb", "retry") is not None and not s.find("state")
    if not (opening or negated or again or (closing and targeted and starts_with_target)):
        return None
    chosen = first if opening and first is not None else verbs[-1]
    values = {m.value for spot in verbs for m in spot.meanings if m.kind == "verb"}
    if "retry" in values and chosen.means("verb", "submit"):
        s.use(chosen)
        chosen = next(spot for spot in verbs if spot.means("verb", "retry"))
        return chosen, "retry"
    return chosen, chosen.value("verb")


def _without_verb(s: Spots) -> tuple[Spot, str] | None:
    """Return the verb that `job 14 to the front` and `give job 14 priority 3` leave out."""
    if s.question or not s.targets["job"] or any(
        s.find(kind) for kind in ("ask", "verb", "compare")
    ):  # fmt: skip
        return None
    ranked = s.find("measure", "priority")
    if ranked is not None and s.loose(("number",)):
        return ranked, "priority"
    placed = [x for x in s.spots if x.means("before", "first") or x.means("before", "last")]
    if len(placed) == 1 and not s.find("measure"):
        return placed[0], "move"
    return None


def _words(s: Spots, spot: Spot) -> str:
    return " ".join(s.tokens[i].norm for i in spot.tokens)


def _soft(s: Spots, spot: Spot) -> bool:
    return _words(s, spot) == "en fait" or all(s.tokens[i].norm in _SOFTENERS for i in spot.tokens)


def _trailing(s: Spots) -> int:
    count = 0
    for token in reversed(s.tokens):
        if token.norm not in _SOFTENERS:
            break
        count += 1
    return count


class _Reader:
    """Read the arguments of one verb."""

    def __init__(self, s: Spots, state: State, spot: Spot, verb: str) -> None:
        self.s, self.state, self.spot = s, state, spot
        self.resolved: list[str] = []
        self.verb = self._exact_verb(verb)
        s.use(spot)
        s.has("polite")
        for other in s.spots:
            if other.means("verb", self.verb) or other.means("verb", verb):
                s.use(other)
            elif self.verb in _TAKES_BACK and _words(s, other) in _AGAIN:
                s.use(other)  # "release it again"

    def _exact_verb(self, verb: str) -> str:
        """Return the verb that the words around it make of it: to pause a job is to hold it."""
        s, jobs = self.s, bool(self.s.targets["job"]) or self._pronoun_is_job()
        if verb in ("pause", "resume", "hold", "release"):
            jobs = self._holds_jobs(jobs)
        setting = named_setting(s)
        if setting and any(value_of(s.tokens[i].norm) for i in self.spot.tokens):
            return "set"  # mute notifications
        if verb == "submit" and s.find("verb", "retry"):
            return "retry"
        if verb in ("set", "move") and s.find("measure", "priority"):
            return "priority"
        if verb == "move" and setting:
            return "set"
        if verb == "undrain" and jobs and not s.find("noun", "device"):
            return "release"  # "gib ihn wieder frei"
        if verb in ("release", "resume") and s.targets["device"] and not s.targets["job"]:
            return "undrain"  # "entsperre GPU 0"
        if verb in ("submit", "set", "hold", "move") and s.find("before") and jobs:
            return "move"
        return self._of_jobs(verb) if jobs else self._of_queue(verb)

    def _holds_jobs(self, jobs: bool) -> bool:
        """Report if an order to hold or release is for jobs, not for the queue or a group.

        Args:
            jobs: A job is named, or a pronoun may stand for one; `la` may be an article, too.
        """
        s = self.s
        if s.find("noun", "queue") or s.find("noun", "group") or s.groups:
            return bool(s.targets["job"]) or (jobs and s.find("before") is not None)
        if jobs or s.find("noun"):
            return jobs
        if s.loose(("number", "range")):
            return True  # as the command line has it: pause 7
        return s.find("pron") is not None and not s.find("all")  # nobody said which

    def _of_jobs(self, verb: str) -> str:
        """Return the verb for jobs that are named."""
        if verb == "cancel" and (self.s.targets["process"] or self.s.find("noun", "process")):
            return "kill"
        return {"pause": "hold", "resume": "release"}.get(verb, verb)

    def _of_queue(self, verb: str) -> str:
        """Return the verb for the queue, a process or jobs in a state."""
        s = self.s
        if verb == "cancel" and (s.targets["process"] or s.find("noun", "process")):
            return "kill"
        if verb in ("pause", "hold") and s.find("state", "queued"):
            return "hold"
        if s.find("noun", "queue"):
            if verb == "cancel" and not s.find("all"):
                return "pause"
            if verb == "submit" and not self._has_command():
                return "resume"
        return {"hold": "pause", "release": "resume"}.get(verb, verb)

    def _pronoun_is_job(self) -> bool:
        return self.state.about == "job" and self.s.find("pron") is not None

    def read(self) -> OrderReading:
        """Return the order, or why it cannot be one."""
        s = self.s
        if s.find("not") is not None:
            return self._refused("forbidden", "not")
        order = getattr(self, f"_read_{self.verb}", self._read_jobs)()
        if (spot := s.find("cond")) is not None and not s.used >= set(spot.tokens):
            return self._refused("condition", "cond")
        if s.time is not None and not s.used >= s.time.used:
            words = tuple(s.tokens[i].text for i in sorted(s.time.used))
            return OrderReading(None, "time", words, self.verb)
        verbs = [spot for spot in s.spots if spot.means("verb") and not spot.means("filler")
                 and not s.used >= set(spot.tokens)]  # fmt: skip
        if verbs:
            words = tuple(s.tokens[i].text for spot in verbs for i in spot.tokens)
            return OrderReading(None, "several", words, self.verb)
        if isinstance(order, OrderReading) and order.problem == "pronoun":
            return order
        if unread := s.unread():
            return OrderReading(None, "unread", tuple(unread), self.verb)
        if isinstance(order, OrderReading):
            return order
        return OrderReading(order, verb=self.verb, resolved=tuple(self.resolved))

    def _refused(self, problem: Problem, kind: str) -> OrderReading:
        words = tuple(
            self.s.tokens[i].text for spot in self.s.spots if spot.means(kind) for i in spot.tokens
        )
        return OrderReading(None, problem, words, self.verb)

    # ---- targets

    def _jobs(self) -> tuple[Target, ...]:
        s = self.s
        if s.find("noun", "job") is not None:
            s.has("noun", "job")
        named = list(s.targets["job"])
        if not named and s.find("noun", "device") is None and "job" not in s.counts:
            named += self._loose_jobs()
        if named:
            return tuple(dict.fromkeys(named))
        return self._referred()

    def _loose_jobs(self) -> list[Target]:
        """Return the jobs that numbers without a noun name, as in `13 thru 15`."""
        s, named = self.s, list[Target]()
        for i in s.loose(("number", "range")):
            token = s.tokens[i]
            if not any(letter.isdigit() for letter in token.text):
                continue  # "cancel the two" is not job 2
            from_before = i > 1 and s.tokens[i - 1].norm in RANGE and i - 2 in s.used
            first = named[-1] if named and from_before else None
            if isinstance(first, int) and 0 < token.value - first <= MOST:
                named += range(first + 1, int(token.value) + 1)
                s.used.add(i - 1)
            else:
                named += token.whole_numbers()
            s.used.add(i)
        return named

    def _referred(self) -> tuple[Target, ...]:
        s = self.s
        ordinal = s.find("ordinal")
        if ordinal is not None:
            number = int(ordinal.value("ordinal"))
            listed = self.state.jobs
            s.use(ordinal)
            if listed and s.find("noun", "job") is None and abs(number) <= len(listed):
                job = listed[number - 1 if number > 0 else number]
                self.resolved.append(f"job {job}")
                return (job,)
            return (NEWEST,) if number == -1 else ()
        pron = s.find("pron", "them") or s.find("pron", "it")
        if pron is not None and self.state.about == "job" and self.state.jobs:
            s.use(pron)
            found = self.state.jobs if pron.means("pron", "them") else self.state.jobs[:1]
            self.resolved += [f"job {job}" for job in found]
            return found
        return ()

    def _excluded(self) -> tuple[Target, ...]:
        """Return the jobs behind `all but`, which are then not among the targets."""
        s = self.s
        spot = s.find("except")
        if spot is None or not s.find("all"):
            return ()
        before = {name for first, (name, _) in s.names.items() if first < spot.first}
        nouns = [x.first > spot.last for x in s.spots if x.means("noun", "job")]
        numbered = any(isinstance(job, int) for job in s.targets["job"])
        if numbered and nouns and not nouns[-1]:
            return ()  # "all of jobs 3-5 but ..." names jobs on both sides
        loose = [i for i in s.loose(("number", "range")) if i > spot.last]
        found = tuple(job for job in dict.fromkeys(s.targets["job"]) if job not in before)
        found += tuple(n for i in loose for n in s.tokens[i].whole_numbers())
        s.used.update(loose)
        found = found or (() if before else self._referred())
        if not found:
            return ()
        s.use(spot)
        s.targets["job"] = [job for job in dict.fromkeys(s.targets["job"]) if job in before]
        return found

    def _states(self) -> tuple[str, ...]:
        return self.s.states(_STATES)

    def _group(self) -> str:
        s = self.s
        if s.find("noun", "group") is None and not s.groups:
            return ""
        found = next(iter(s.groups.items()), None)
        if found is None:
            return ""
        s.has("noun", "group")
        s.used.add(found[0])
        return found[1]

    # ---- verbs

    def _read_jobs(self) -> Order | OrderReading:
        s = self.s
        exclude = self._excluded()
        group = self._group()
        states = self._states()
        jobs = tuple(s.targets["job"]) if exclude else self._jobs()
        everything = s.has("all") or s.plural
        if everything and jobs and all(isinstance(job, str) and job != group for job in jobs):
            states = states or (ACTIVE if self.verb == "cancel" else VERBS[self.verb].states)
        elif group and jobs == (group,):
            jobs = ()  # a group that is called as its jobs are
        one = s.find("noun", "job")
        if states and not jobs and not everything and one is not None and _is_one(s, one):
            return OrderReading(None, "pronoun", (s.tokens[one.first].text,), self.verb)
        s.has("noun", "job", "queue") if everything or states or group else None
        if not (jobs or states or group) and (everything or exclude):
            states = ACTIVE if self.verb == "cancel" else VERBS[self.verb].states
        if not (jobs or states or group):
            pron = s.find("pron")
            if pron is not None:
                return OrderReading(None, "pronoun", tuple(s.tokens[i].text for i in pron.tokens),
                                    self.verb)  # fmt: skip
        s.has("pron") if jobs else None
        return Order(self.verb, jobs=jobs, states=states, group=group, exclude=exclude)

    def _read_pause(self) -> Order:
        group = self._group()
        self.s.has("noun", "queue")
        if self.verb == "resume":
            self.s.has("verb", "submit", "retry", "release")
        if not group:
            self.s.has("all")
            self.s.has("noun", "job")
        return Order(self.verb, group=group)

    _read_resume = _read_pause

    def _read_move(self) -> Order:
        s = self.s
        place = s.take("before")
        s.has("ordinal")
        s.has("noun", "job", "queue")
        jobs = tuple(dict.fromkeys(s.targets["job"]))
        loose = [int(s.tokens[i].value) for i in s.loose(("number",))]
        s.used.update(s.loose(("number",)))
        jobs = (*jobs, *loose) or self._referred()
        s.has("pron")
        beside = jobs[1] if place in ("before", "after") and len(jobs) == 2 else None
        return Order("move", jobs=jobs[:1] if beside is not None else jobs, place=place or "first",
                     beside=beside)  # fmt: skip

    def _read_priority(self) -> Order:
        s = self.s
        s.has("measure", "priority")
        jobs, loose = tuple(s.targets["job"]), s.loose(("number",))
        s.has("noun", "job")
        number = int(s.tokens[loose[-1]].value) if loose else None
        s.used.update(loose[-1:])
        return Order("priority", jobs=jobs or self._jobs(), number=number)

    def _has_command(self) -> bool:
        return bool(read_submission(self.s.request, (), 0.0, self._program()).command)

    def _program(self) -> str:
        """Return the word behind the verb if it has a mark in it, as nvidia-smi has."""
        place = self.spot.last + 1
        word = self.s.tokens[place].text if place < len(self.s.tokens) else ""
        marked = word not in WORKLOADS and any(mark in word.strip("-./_") for mark in "-./_")
        return word if marked else ""

    def _read_submit(self) -> Order | OrderReading:
        found = read_new_job(self.s, self._program())
        if found != Order("submit"):
            self.s.used.update(range(len(self.s.tokens)))
        return found

    def _read_kill(self) -> Order | OrderReading:
        s = self.s
        s.has("noun", "process")
        pids = [t for t in s.targets["process"] if isinstance(t, int)]
        for i in s.loose(("number",)):
            pids.append(int(s.tokens[i].value))
            s.used.add(i)
        if len(pids) > 1:
            return OrderReading(None, "several", tuple(map(str, pids)), self.verb)
        return Order("kill", number=pids[0] if pids else None)

    def _read_drain(self) -> Order:
        self.s.has("noun", "device")
        devices = [t for t in self.s.targets["device"] if isinstance(t, int)]
        return Order(self.verb, devices=tuple(dict.fromkeys(devices)))

    _read_undrain = _read_drain

    def _read_limit(self) -> Order:
        s = self.s
        loose = s.loose(("number",))
        group = self._group() or self._named_group()
        number = int(s.tokens[loose[0]].value) if loose else s.counts.get("job")
        s.used.update(loose[:1])
        s.use_count("job")
        s.has("noun", "job")
        s.has("all")
        s.has("at once")
        return Order("limit", group=group, number=number)

    def _named_group(self) -> str:
        """Return the group whose name, or its plural, is a word, though a job is called so, too."""
        s = self.s
        for i, token in enumerate(s.tokens):
            for name in s.known.groups:
                if token.norm in (name.casefold(), f"{name.casefold()}s"):
                    s.used.add(i)
                    return name
        return ""

    def _read_note(self) -> Order:
        s = self.s
        jobs = tuple(s.targets["job"]) or self._referred()
        s.has("noun", "job")
        quoted = [i for i, t in enumerate(s.tokens) if t.kind == "quoted"]
        s.used.update(quoted)
        text = s.tokens[quoted[0]].text if quoted else ""
        if not quoted and ":" in s.request:
            text = s.request.partition(":")[2].strip()
            s.used.update(range(len(s.tokens)))
        return Order("note", jobs=jobs, text=text)

    def _read_acknowledge(self) -> Order:
        s = self.s
        s.has("noun", "alert")
        numbers = [t for t in s.targets["alert"] if isinstance(t, int)]
        return Order("acknowledge", number=numbers[0] if len(numbers) == 1 else None)

    def _read_set(self) -> Order | OrderReading:
        s = self.s
        setting = find_setting(s)
        machine = tuple(token.text for token in s.tokens if token.norm in _MACHINE)
        if machine and not setting:
            return OrderReading(None, "unread", machine, self.verb)  # "turn off the computer"
        s.has("noun", "setting")
        value = ""
        for i, token in enumerate(s.tokens):
            if token.kind in ("number", "quantity") and i not in s.used:
                found = in_setting_unit(setting, token.value, token.unit)
                if found is None:
                    continue  # a unit that the setting does not have stays unread
                value = f"{found:g}"
                s.used.add(i)
            elif word := value_of(token.norm):
                value = value or word
                s.used.add(i)
        if not value and (verb := self.spot):
            words = " ".join(s.tokens[i].norm for i in verb.tokens)
            value = value_of(words.split()[-1]) or value_of(words.split()[0])
        if not setting and value in ("dark", "light"):
            setting = "theme"
            s.has("pron")
        s.has("before", "after")
        s.has("measure", "temp") if setting == "alert_temperature" else None
        return Order("set", setting=setting, text=value)

    def _read_undo(self) -> Order:
        self.s.has("topic", "clean")
        return Order("undo")


def _is_one(s: Spots, noun: Spot) -> bool:
    """Return whether the noun is singular: `the failed job` may be any of several."""
    return s.tokens[noun.last].norm in ("job", "task", "run", "auftrag", "tache", "tarea",
                                        "trabajo", "lauf", "training")  # fmt: skip


def read_new_job(s: Spots, program: str = "") -> Order | OrderReading:
    """Return the order for a new job, or the words of the request that have no place in it."""
    workload, request = _named_workload([token.norm for token in s.tokens]), s.request
    params: dict[str, str] = {}
    if workload and not read_submission(request, (), s.now, program).command:
        params, request = read_parameters(catalog.find(workload), request)
    found = read_submission(request, s.known.jobs, s.now, program, workload)
    if not (found.command or workload):
        return Order("submit")
    if found.unread:
        return OrderReading(None, "command", found.unread, "submit")
    if found.command:
        return Order("submit", command=found.command, options=found.options)
    return Order("submit", workload=workload, params=params, options=found.options)


def _named_workload(words: Sequence[str]) -> str:
    """Return the workload that words name, or ""; a name of two words may be written apart."""
    pairs = [f"{first}_{second}" for first, second in itertools.pairwise(words)]
    return next((word for word in (*pairs, *words) if word in WORKLOADS), "")
