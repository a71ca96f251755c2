"""The exact forms of orders in four languages: only these act without a card.

A request is exact if all of it, word by word, is one of the forms that are made from the order.
Names of jobs are foreign text, so only orders that name their targets by numbers have such forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudeck.assistant.query.request import Order

_AND = {"en": "and", "de": "und", "fr": "et", "es": "y"}
_ONE = {
    "cancel": ("cancel job {n}", "cancel {n}", "brich job {n} ab", "job {n} abbrechen",
               "annule le job {n}", "annuler le job {n}", "annule job {n}",
               "cancela el job {n}", "cancelar el job {n}", "cancela job {n}",
               "cancela el trabajo {n}", "annule la tâche {n}", "storniere job {n}"),
    "hold": ("hold job {n}", "pause job {n}", "pause {n}", "halte job {n} an",
             "job {n} anhalten", "suspends le job {n}", "retén el job {n}", "reten el job {n}"),
    "release": ("release job {n}", "resume job {n}", "resume {n}", "gib job {n} frei",
                "job {n} freigeben", "libère le job {n}", "libera el job {n}"),
    "retry": ("retry job {n}", "rerun job {n}", "run job {n} again", "starte job {n} neu",
              "relance le job {n}", "reintenta el job {n}", "relanza el job {n}"),
}  # fmt: skip
_MANY = {
    "cancel": ("cancel jobs {n}", "cancel {n}", "brich jobs {n} ab", "jobs {n} abbrechen",
               "annule les jobs {n}", "cancela los jobs {n}", "brich die jobs {n} ab"),
    "hold": ("hold jobs {n}", "pause jobs {n}", "halte jobs {n} an", "suspends les jobs {n}",
             "retén los jobs {n}"),
    "release": ("release jobs {n}", "resume jobs {n}", "gib jobs {n} frei",
                "libère les jobs {n}", "libera los jobs {n}"),
    "retry": ("retry jobs {n}", "rerun jobs {n}", "starte jobs {n} neu", "relance les jobs {n}",
              "reintenta los jobs {n}"),
}  # fmt: skip
_WHOLE = {
    "pause": ("pause", "pause the queue", "pause queue", "pausiere die warteschlange",
              "warteschlange pausieren", "mets la file en pause", "pausa la cola"),
    "resume": ("resume", "resume the queue", "resume queue", "setze die warteschlange fort",
               "warteschlange fortsetzen", "reprends la file", "reanuda la cola"),
    "undo": ("undo the clean-up", "undo the clean up", "undo the cleanup"),
}  # fmt: skip
_ALL = {
    ("cancel", "queued"): ("cancel all queued jobs", "brich alle wartenden jobs ab",
                           "annule tous les jobs en attente", "cancela todos los jobs en espera"),
    ("cancel", "running"): ("cancel all running jobs", "brich alle laufenden jobs ab",
                            "annule tous les jobs en cours", "cancela todos los jobs en curso"),
    ("cancel", "all"): ("cancel all jobs", "brich alle jobs ab", "annule tous les jobs",
                        "cancela todos los jobs"),
    ("retry", "failed"): ("retry all failed jobs", "starte alle fehlgeschlagenen jobs neu",
                          "relance tous les jobs échoués", "reintenta todos los jobs fallidos"),
}  # fmt: skip
_GPUS = {
    "drain": ("drain gpu {n}", "leere gpu {n}", "sperre gpu {n}", "draine le gpu {n}",
              "drena la gpu {n}"),
    "undrain": ("undrain gpu {n}", "entsperre gpu {n}"),
}  # fmt: skip
_SETS = ("all", "queued", "running", "failed")


def is_exact(request: str, order: Order) -> bool:
    """Return whether a request is, word by word, one of the exact forms of the order."""
    return _plain(request) in set(map(_plain, forms(order)))


def exact_order(request: str) -> Order | None:
    """Return the order of which a request is, word by word, an exact form, or None."""
    numbers = tuple(dict.fromkeys(_numbers(request)))
    if any(number > MOST for number in numbers):
        return None
    for order in _candidates(numbers):
        if is_exact(request, order):
            return order
    return None


MOST = 2**63 - 1


def _numbers(request: str) -> Iterator[int]:
    """Yield the numbers of a request, and those between the ends of a range."""
    for first, last in re.findall(r"(\d{1,18})(?:-(\d{1,18}))?", request):
        end = int(last or first)
        yield from range(int(first), end + 1 if end - int(first) < _LONGEST else int(first) + 1)


_LONGEST = 1000
"""The most jobs of a range."""


def _candidates(numbers: tuple[int, ...]) -> Iterator[Order]:
    """Yield the orders that may have a form with these numbers."""
    if not numbers:
        yield from map(Order, _WHOLE)
        yield from (Order(verb, states=_states_of(verb, name)) for verb, name in _ALL)
        return
    yield from (Order(verb, jobs=numbers) for verb in _ONE)
    if len(numbers) == 1:
        yield from (Order(verb, devices=numbers) for verb in _GPUS)
        yield Order("kill", number=numbers[0])


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").removesuffix("!")


def forms(order: Order) -> Iterator[str]:
    """Yield the exact forms of an order; none if it names anything by a foreign text."""
    if order == Order(order.verb):
        yield from _WHOLE.get(order.verb, ())
    elif order == Order(order.verb, jobs=order.jobs):
        yield from _of_jobs(order)
    elif order == Order(order.verb, states=order.states):
        names = [name for name in _SETS if order.states == _states_of(order.verb, name)]
        for name in names:
            yield from _ALL.get((order.verb, name), ())
    elif order == Order(order.verb, devices=order.devices) and len(order.devices) == 1:
        yield from (form.format(n=order.devices[0]) for form in _GPUS.get(order.verb, ()))
    elif order == Order("kill", number=order.number):
        yield f"kill process {order.number}"


def _of_jobs(order: Order) -> Iterator[str]:
    numbers = [job for job in order.jobs if isinstance(job, int) and job >= 0]
    if len(numbers) != len(order.jobs):
        return  # a name, which is foreign text
    if len(numbers) == 1:
        yield from (form.format(n=numbers[0]) for form in _ONE.get(order.verb, ()))
    else:
        for form in _MANY.get(order.verb, ()):
            yield from (form.format(n=text) for text in _lists(numbers))


def _states_of(verb: str, name: str) -> tuple[str, ...]:
    return {
        "all": ("queued", "starting", "running"),
        "queued": ("queued",),
        "running": ("running", "starting"),
        "failed": ("failed", "lost"),
    }[name]


def _lists(numbers: Sequence[int]) -> Iterator[str]:
    """Yield `3, 4 and 5` in four languages, and `3-5` for numbers in a row."""
    first, last = ", ".join(map(str, numbers[:-1])), numbers[-1]
    for word in _AND.values():
        yield f"{first} {word} {last}"
    yield ", ".join(map(str, numbers))
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        yield f"{numbers[0]}-{numbers[-1]}"
