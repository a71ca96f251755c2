"""Read questions about alerts, the queue, capacity, settings, the manual and the rest."""

from __future__ import annotations

from gpudeck.assistant.intents.lexicon import english
from gpudeck.assistant.intents.reading import QueryReader, find_setting, in_unit, named_setting
from gpudeck.assistant.intents.spots import Spot, Spots
from gpudeck.assistant.intents.tokens import unit_of
from gpudeck.assistant.language.glossary import term_for, term_of
from gpudeck.assistant.language.guides import guide_of
from gpudeck.assistant.query.conversion import convert, kind_of
from gpudeck.assistant.query.request import Query, Span, Where

_ASKED_HOW = frozenset({"after", "array", "reserve", "charts", "revive"})
"""Guides that answer `how`, and not every question with their words."""


def help_wanted(r: QueryReader) -> Query | None:
    """Read a question about what the assistant can do."""
    spot = r.s.find("topic", "help")
    if spot is None or r.s.targets["job"] or r.s.targets["device"]:
        return None
    if spot.first == spot.last and spot.first > 0 and len(r.s.tokens) > 3:
        return None
    r.s.has("topic", "help")
    return Query("help")


def conversion(r: QueryReader) -> Query | None:
    """Read `what is 20 GB in GiB`, and `350 W for 8 hours in kWh`."""
    s = r.s
    quantities = [i for i, t in enumerate(s.tokens) if t.kind == "quantity" and i not in s.used]
    if not quantities and s.find("agg", "count"):
        return _one_unit(s)
    if len(quantities) == 1 and not s.loose(("quantity",)):
        return None  # "in the last 24 hours"
    if not quantities or s.find("noun", "job") or s.find("topic", "capacity"):
        return None
    first = s.tokens[quantities[0]]
    amount, unit = first.value, first.unit
    used = [quantities[0]]
    for i, token in enumerate(s.tokens):
        period = unit_of(token.norm)
        lasts = token.kind == "word" and i > used[0] and kind_of(period) == "time"
        if lasts and len(quantities) == 1 and kind_of(unit) == "power":
            amount = convert(amount, unit, "W") * convert(1.0, period, "s")
            unit, used = "J", [quantities[0], i]
            s.has("bound", "above")  # "over a day"
            break
    if len(quantities) > 1:
        second = s.tokens[quantities[1]]
        if {kind_of(unit), kind_of(second.unit)} != {"power", "time"}:
            return None
        watts, span = (first, second) if kind_of(unit) == "power" else (second, first)
        amount = watts.value * (1000 if watts.unit == "kW" else 1)
        amount *= span.value * {"s": 1, "min": 60, "h": 3600, "d": 86400}.get(span.unit, 0)
        unit = "J"
        used.append(quantities[1])
    for i, token in enumerate(s.tokens):
        to = unit_of(token.norm)
        if i not in used and token.kind == "word" and to and kind_of(to) == kind_of(unit):
            s.used.update([*used, i])
            if len(used) > 1:
                s.use_time()
            s.has("topic", "convert")
            s.has("ask", "how much")
            s.has("agg", "count")
            s.has("measure", "energy")
            s.has("measure", "power")
            s.has("measure", "temp")
            return Query("conversion", amount=amount, unit=unit, to=to)
    return None


def _one_unit(s: Spots) -> Query | None:
    """Read `how many joules in a kWh`."""
    units = [(i, unit) for i, t in enumerate(s.tokens) if t.kind == "word"
             and (unit := unit_of(t.norm))]  # fmt: skip
    if len(units) != 2 or kind_of(units[0][1]) != kind_of(units[1][1]) or s.time is not None:
        return None
    s.used.update(i for i, _ in units)
    s.has("agg", "count")
    s.has("ask", "how much")
    s.has("topic", "convert")
    return Query("conversion", amount=1.0, unit=units[1][1], to=units[0][1])


def how_to(r: QueryReader) -> Query | None:
    """Read how something is done, and what a word means."""
    s = r.s
    if (explained := _guide(r) or _difference(s)) is not None:
        return explained
    asked = s.find("ask", "how to")
    xid = any(
        token.norm in ("explain", "erklare", "explique", "explica")
        or (token.norm == "xid" and bool(s.loose(("number",))))
        for token in s.tokens
    )
    term = _asked_term(s)
    verb = "" if term else _asked_verb(s)
    if asked is None and not xid and not verb and not term:
        return None
    if (s.targets["job"] or s.find("pron", "it")) and s.find("measure", "command"):
        return None
    if not verb and (s.targets["job"] or s.targets["device"]):
        return None
    if s.find("compare") or (asked is not None and asked.first > 6 and not xid):
        return None
    if not verb and asked is not None and _of_value(s):
        return None
    s.used.update(range(len(s.tokens)))
    return Query("manual", term or verb, text=_in_english(s))


def _guide(r: QueryReader) -> Query | None:
    """Read `how long is history kept`: a question that a guide of the program answers."""
    s = r.s
    if s.targets["job"] or s.targets["device"]:
        return None
    asks = s.question or s.find("ask", "how to") or s.find("ask", "how long") or (
        {token.norm for token in s.tokens[:2]} & _HOW)  # fmt: skip
    name = guide_of(frozenset(token.norm for token in s.tokens)) if asks else ""
    how = {token.norm for token in s.tokens[:2]} & _HOW and not s.find("agg", "count")
    if not name or (name in _ASKED_HOW and not how):
        return None
    s.used.update(range(len(s.tokens)))
    return Query("manual", f"how {name}", text=s.request.strip())


_HOW = frozenset({"how", "wie", "comment", "como"})


def _difference(s: Spots) -> Query | None:
    """Read `what is the difference between hold and pause`: what two terms mean."""
    asked = s.find("compare") or "difference" in {token.norm for token in s.tokens}
    if not asked or s.targets["job"] or s.targets["device"] or s.time is not None:
        return None
    terms = [
        term
        for spot in s.spots
        if (term := term_for(m.value for m in spot.meanings if m.kind in _NAMING))
    ]
    if len(set(terms)) != 2 or s.find("noun", "device"):
        return None
    s.used.update(range(len(s.tokens)))
    first, second = dict.fromkeys(terms)
    text = s.request.strip()
    return Query("manual", f"what {first}", text=text, other=Query("manual", f"what {second}"))


def _bare_term(s: Spots) -> str:
    """Return the term of `what is sm clock`: a measure without an article or a number."""
    norms = [token.norm for token in s.tokens]
    opening = next((size for words, size in _WHAT_IS.items() if tuple(norms[:size]) == words), 0)
    rest = [x for x in s.spots if x.means("measure") and x.first == opening
            and x.last == len(norms) - 1]  # fmt: skip
    values = [m.value for spot in rest for m in spot.meanings if m.kind == "measure"]
    return term_for(values) if opening else ""


_WHAT_IS = {("what", "is"): 2, ("was", "ist"): 2, ("que", "es"): 2,
            ("qué", "es"): 2, ("c", "est", "quoi"): 3}  # fmt: skip


def _asked_term(s: Spots) -> str:
    """Return the term of `what does lost mean`, as a measure of the manual."""
    if term := _bare_term(s):
        return f"what {term}"
    norms = [token.norm for token in s.tokens]
    text = f" {' '.join(norms)} "
    if not any(f" {phrase} " in text for phrase in _MEAN) or s.loose(("number",)):
        return ""
    meant = {m.value for spot in s.spots for m in spot.meanings if m.kind in _NAMING}
    term = term_of(frozenset(norms), frozenset(meant))
    return f"what {term}" if term else ""


_NAMING = frozenset({"state", "measure", "verb", "noun"})
_MEAN = (
    "mean", "means", "meaning", "explain", "define", "what is a", "what s a", "what is an",
    "what are", "was bedeutet", "was heisst", "bedeutung", "erklare", "erklar", "was ist ein",
    "was ist eine", "was ist der", "que signifie", "veut dire", "c est quoi", "qu est ce qu un",
    "qu est ce qu une", "qu est ce que", "explique", "que significa", "que es", "explica",
    "significado", "que quiere decir", "bedeutet", "heisst", "signifie", "significa", "what is ecc",
    "what is xid", "what is throttling", "what is utilization", "what is utilisation",
)  # fmt: skip
"""How the meaning of a word is asked for."""


def _in_english(s: Spots) -> str:
    """Return the question with English words for those of other languages, as the manual is."""
    if s.language() == "en":
        return s.request.strip()
    known = {i for spot in s.spots for i in spot.tokens}
    words = [token.text for i, token in enumerate(s.tokens) if i not in known]
    for spot in s.spots:
        meaning = next((m for m in spot.meanings if m.kind in _CONTENT), None)
        if meaning is not None and not spot.means("filler"):
            words.append(english(meaning.kind, meaning.value))
    return " ".join(filter(None, words)) or s.request.strip()


_CONTENT = frozenset({"noun", "measure", "state", "verb", "topic", "kind"})


def _asked_verb(s: Spots) -> str:
    """Return the verb of `how do I cancel a job` and `wie breche ich einen Job ab`."""
    asked = s.find("ask", "how to") or s.find("ask", "how")
    if (
        asked is None
        and [token.norm for token in s.tokens[:1]] == ["wie"]
        and {"ich", "man"} & {token.norm for token in s.tokens[2:4]}
    ):  # "wie ändere ich"
        asked = Spot(0, 0, ())
    verbs = [spot for spot in s.spots if spot.means("verb")]
    if asked is not None and asked.first == 0 and s.find("measure", "priority") and not verbs:
        return "priority"
    if asked is None or not verbs or verbs[0].first < asked.first:
        return ""
    norms = [token.norm for token in s.tokens]
    if s.find("measure", "priority"):
        return "priority"
    infinitive = asked.means("ask", "how to") or bool({"ich", "man", "wir"} & set(norms))
    if not infinitive:
        return ""
    for verb, noun in _BY_NOUN.items():
        named = s.find("noun", noun)
        if named and any(x != named and x.means("verb", verb) for x in verbs):
            return verb
    if not s.find("noun", "setting") and not named_setting(s):
        verbs = [x for x in verbs if not x.means("verb", "set")] or verbs
    found = next((x for x in verbs if not x.means("filler")), verbs[0])
    values = [m.value for m in found.meanings if m.kind == "verb"]
    if values == ["set"] and not named_setting(s):
        return ""
    if s.find("noun", "job") and not s.find("noun", "queue"):
        values = [{"pause": "hold", "resume": "release"}.get(value, value) for value in values]
    return "retry" if s.find("verb", "retry") and "submit" in values else values[0]


_BY_NOUN = {"pause": "queue", "resume": "queue", "kill": "process", "limit": "group",
            "drain": "device", "undrain": "device", "acknowledge": "alert",
            "submit": "job", "cancel": "job", "set": "setting"}  # fmt: skip
"""Verbs that share words with others are told apart by what they act on."""


def _of_value(s: Spots) -> bool:
    """Return whether `wie hoch ist` or `what is a` asks for a reading and not for the manual."""
    spot = s.find("ask", "how to")
    assert spot is not None
    words = " ".join(s.tokens[i].norm for i in spot.tokens)
    return words in ("what is the", "how does it") and s.find("measure") is not None


_AROUND_S = 1800.0


def report(r: QueryReader) -> Query | None:
    """Read the wish for a report on a job or a time, as a PDF or on the screen."""
    s = r.s
    pdf = s.has("topic", "pdf")
    if s.find("topic", "report") is None and not pdf:
        return None
    if not pdf and (s.find("noun", "alert") or s.find("measure") or s.find("noun", "queue")):
        return None
    s.has("topic", "report", "daily", "status", "overview", "log", "end")
    s.has("measure", "duration")
    jobs = r.jobs()
    s.has("noun", "job", "alert", "queue")
    s.has("ordinal") if not jobs else None
    s.has("state") if jobs else None
    s.has("noun", "device") if not s.targets["device"] else None
    time = r.time()
    if time is not None and time.point:
        time = Span(time.since - _AROUND_S, min(time.since + _AROUND_S, s.now))
    s.has("all")
    s.has("ask", "how", "why", "how much", "how to")
    if not jobs and any(spot.means("topic", "report") for spot in s.spots):
        jobs = () if time is not None else r.lone_job()
    return Query("report", jobs=jobs, time=time, text="pdf" if pdf else "")


def debris(r: QueryReader) -> Query | None:
    """Read what can be cleaned up."""
    if r.s.targets["job"] or r.s.find("ask", "why") or r.s.find("state", "failed"):
        return None
    old = next((i for i, t in enumerate(r.s.tokens) if t.norm[:4] in _OLD), None)
    if not r.s.has("topic", "clean") and (old is None or not r.s.find("kind")):
        return None
    r.s.used.update([old] if old is not None else [])
    r.s.has("noun", "model")
    r.s.has("all")
    r.s.has("state", "idle")
    r.s.has("ask", "how much", "how to", "how")
    r.s.has("topic", "used now", "eats", "capacity", "eta")
    r.s.has("super")
    r.s.has("agg", "count")
    kind = r.s.find("kind")
    if kind is not None:
        r.s.use(kind)
    r.s.has("topic", "log") if kind is not None and kind.value("kind") == "logs" else None
    return Query("debris", text=kind.value("kind") if kind is not None else "")


_OLD = frozenset({"old", "alte", "vieu", "viei", "viej", "dupl", "dopp"})


def threshold(r: QueryReader) -> Query | None:
    """Read `from which temperature do you warn`: the setting of an alert."""
    s = r.s
    if not s.find("topic", "warns") or s.targets["job"] or s.targets["device"] or s.find("not"):
        return None
    if any(spot.means("cond") and not _instead(s, spot) for spot in s.spots):
        return None
    units = {kind_of(token.unit) for token in s.tokens if token.kind == "quantity"}
    if s.find("measure", "temp") or "temperature" in units:
        name = "alert_temperature"
    elif s.find("measure", "mem_used"):
        name = "alert_memory"
    else:
        return None
    if s.time is not None or s.find("agg") or s.find("state") or s.find("topic", "fired"):
        return None
    s.used.update(range(len(s.tokens)))
    return Query("settings", text=name)


def _instead(s: Spots, spot: Spot) -> bool:
    words = " ".join(s.tokens[i].norm for i in spot.tokens)
    return words in ("instead", "only", "erst", "nur", "stattdessen", "seulement", "solo")


def setting(r: QueryReader) -> Query | None:
    """Read the value of a setting."""
    found = find_setting(r.s)
    if not found and not r.s.find("noun", "setting"):
        return None
    r.s.has("noun", "setting")
    r.s.has("verb", "set")
    r.s.has("ask", "how much", "how", "when")
    r.s.has("state", "idle", "held")
    r.s.has("noun", "alert", "job")
    r.s.has("topic", "log", "status")
    r.s.has("all")
    r.s.has("measure", "temp")
    return Query("settings", text=found)


def capacity(r: QueryReader) -> Query | None:
    """Read whether and when a job would start."""
    s = r.s
    size = next((i for i in s.loose(("quantity",)) if kind_of(s.tokens[i].unit) == "size"), None)
    asks = s.question or s.find("ask") is not None or s.find("polite") is not None or any(
        t.norm in _ASKS for t in s.tokens[:3]
    )  # fmt: skip
    sized = size is not None or "device" in s.counts
    named = s.find("noun", "job") or s.find("noun", "device") or s.find("noun", "model")
    cue = s.find("topic", "capacity") or s.find("topic", "start") or (
        size is not None and s.find("noun", "job") and not s.find("state"))  # fmt: skip
    free = s.find("ask", "when") and s.find("state", "idle") and s.time is None
    if not (cue or free) or not asks or s.targets["job"]:
        return None
    if not sized and not (free and named) and not (s.find("topic", "capacity") and named):
        return None
    if s.find("ask", "why") or s.find("bound") or s.find("measure", "waited"):
        return None
    if s.find("super") and not sized and s.find("topic", "capacity"):
        return _largest(s)
    pronoun = s.find("pron", "it") and r.state.about == "job"
    if not sized and (pronoun or s.find("super") or (s.find("ordinal") and not free)):
        return None
    if (s.time is not None and not s.time.span.point) or s.find("agg", "mean"):
        return None
    if s.targets["device"]:
        return _fits(r, size) if size is not None else None
    amount = 0.0
    if size is not None:
        s.used.add(size)
        amount = in_unit(s.tokens[size], "B")
    gpus = s.counts.get("device", 0)
    s.use_count("device")
    s.use_count("job")
    for kind, values in (("topic", ("capacity", "start", "eta", "eats")),
                         ("noun", ("job", "device", "queue", "model")),
                         ("ask", ("when", "how long", "how to", "how much")), ("verb", ("submit",)),
                         ("measure", ("mem_used", "mem_free", "temp_mem")), ("all", ()),
                         ("state", ("idle", "running", "queued")), ("ordinal", ()),
                         ("before", ()), ("pron", ("it",))):  # fmt: skip
        s.has(kind, *values)
    return Query("capacity", amount=amount, gpus=gpus)


def _largest(s: Spots) -> Query:
    """Return the query for the GPU with the most free memory: "the biggest model I can load"."""
    for kind in ("super", "topic", "noun", "measure", "ask"):
        s.has(kind)
    return Query("devices", "mem_free", aggregate="max", extreme=True)


def _fits(r: QueryReader, size: int) -> Query:
    """Return the query of whether so much memory is free on the GPUs that are named."""
    s = r.s
    s.used.add(size)
    s.has("topic", "capacity", "start")
    s.has("noun", "job", "device", "model")
    s.has("measure", "mem_used", "mem_free")
    s.has("verb", "submit")
    s.has("state", "idle")
    where = (Where("mem_free", above=in_unit(s.tokens[size], "B")),)
    return Query("devices", "mem_free", devices=r.devices(), where=where)


_ASKS = frozenset({"can", "could", "kann", "is", "puis", "puedo", "peut", "hay", "ist", "y", "est",
                   "passt", "cabe", "would", "will", "do", "does", "konnte", "wurde", "puedes",
                   "habe", "ai", "tengo", "podria", "pourrais", "je", "haben", "reicht", "peux",
                   "any", "are", "geht", "tient", "cabria", "hatte", "if", "wenn", "si", "fits",
                   "un", "una", "ein"})  # fmt: skip


def queue(r: QueryReader) -> Query | None:
    """Read the state of the queue or a group."""
    s = r.s
    group = next(iter(s.groups.values()), "")
    named = s.find("noun", "queue")
    if named is None and not (group and s.find("noun", "group")) and not s.find("noun", "group"):
        return None
    jobs = s.find("noun", "job")
    if jobs is not None and (s.find("agg", "count") or s.find("state") or s.groups):
        return None
    if s.find("measure", "holder") or s.targets["job"] or s.find("topic", "eta"):
        return None
    s.has("noun", "queue", "group", "job")
    for i in s.groups:
        s.used.add(i)
    s.has("state", "queued", "running", "held", "idle")
    s.has("ask", "how long", "how much", "how")
    s.has("agg", "count")
    s.has("topic", "status", "overview", "stuck", "eta")
    s.has("verb", "pause", "hold", "resume")
    s.has("measure", "duration")
    s.has("all")
    return Query("queue", group=group)


def alerts(r: QueryReader) -> Query | None:
    """Read alerts."""
    s = r.s
    if s.find("noun", "alert") is None or s.find("noun", "setting") is not None:
        return None
    found, jobs = r.devices(), tuple(s.targets["job"])
    limit = r.limit()
    s.has("noun", "alert", "device", "job")
    s.has("state", "running", "queued")
    s.has("ordinal")
    s.has("topic", "status", "report", "overview")
    s.has("ask", "why", "who", "when")
    s.has("agg", "count")
    s.has("not")
    return Query("alerts", devices=found, jobs=jobs, time=r.time(), limit=limit)


def overview(r: QueryReader) -> Query | None:
    """Read `any problems?` and `status`: alerts, failures, jobs and devices at once."""
    s = r.s
    if not s.has("topic", "overview", "status"):
        return None
    s.has("noun", "device", "job")
    s.has("ask", "how", "why", "how much")
    s.has("not")
    s.has("all")
    s.has("pron", "it")
    return Query("overview", time=r.time())


def models(r: QueryReader) -> Query | None:
    """Read which models there are."""
    s = r.s
    if s.find("noun", "model") is None or s.find("noun", "device"):
        return None
    s.has("noun", "model")
    s.has("measure", "name")
    s.has("topic", "used now")
    s.has("state", "idle", "busy", "running")
    return Query("models")
