"""Measure how labelled orders are answered, and by which thresholds they should be guarded.

    python -m tests.benchmarks.order_thresholds [--choose]

Asked are the orders of the held-out profiles and of the newest ones that were chosen by, and the
requests of all profiles that are no order or none for now. `labelled` are proposed as their label
says, `otherwise` with another target or other options, `asked` with a choice, `refused` with a
reason; `near` are requests of the second kind that are proposed as if they were orders, which none
may be. With `--choose` other values of the thresholds (`gpudeck.assistant.intents.thresholds`) are
tried one after the other: the lowest ones are sound by which no request is `near` that is not by
the highest, with a margin. The rows go to results/order_thresholds.csv.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.intents import thresholds  # noqa: E402
from gpudeck.assistant.intents.understand import Understood, understand  # noqa: E402
from gpudeck.assistant.query.request import Order, Request  # noqa: E402
from gpudeck.assistant.reader.reading import Reader, Reading, shipped_reader  # noqa: E402
from gpudeck.assistant.training.requests import HELD_OUT  # noqa: E402
from tests.benchmarks.request_chain import NOW, Case, profiles  # noqa: E402
from tests.benchmarks.rows import context, write  # noqa: E402

_HELD = frozenset(profile for held in HELD_OUT.values() for profile in held)
_NEWEST = range(401, 433)
SETS: dict[str, Collection[int]] = {
    "held out": _HELD,
    "newest": _NEWEST,
    "near others": frozenset(range(1, 1000)) - _HELD - frozenset(_NEWEST),
}
"""The profiles of each set; of the last one only what is no order, or none for now."""
TRIED = {
    "PLAIN": (0.88, 0.91, 0.96, 1.01),
    "UNCONDITIONAL": (0.94, 0.97),
    "NEW_JOB": (0.88, 0.95),
    "FILLER": (0.7, 0.95),
}


class Remembering(Reader):
    """Read each request once, however often it is asked."""

    def __init__(self, reader: Reader) -> None:
        self.__dict__ |= reader.__dict__
        self._once = cache(reader.read)

    def read(self, request: str, before: str = "") -> Reading:
        """Return what a request means, as it was read the first time."""
        return self._once(request, before)


def worth(found: Understood, case: Case) -> str:
    """Return how an order, or what is only near one, was answered."""
    is_proposed = isinstance(found.request, Order) and not found.plan
    if case.near:
        return "near" if is_proposed else "rightly not"
    if found.choices:
        return "asked"
    if not is_proposed:
        return "refused" if found.refusal is not None else "other answer"
    return "labelled" if found.request in _orders(case.right) else "otherwise"


def _orders(right: Iterable[tuple[Request, ...]]) -> list[Request]:
    return [one for each in right for one in each]


def measure(cases: Iterable[Case], reader: Reader) -> dict[str, Counter[str]]:
    """Return how many requests of each set were answered in which way."""
    counts = {name: Counter[str]() for name in SETS}
    for case in cases:
        found = understand(case.text, case.known, case.state, NOW, reader)
        counts[case.set].update([worth(found, case), "near requests" if case.near else "orders"])
    return counts


def main() -> None:
    """Write a row for each set, and for each threshold that is tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.order_thresholds")
    parser.add_argument("--choose", action="store_true", help="try other thresholds, too")
    args = parser.parse_args()
    cases = [case for case in profiles(SETS) if case.near
             or (case.heads[0].startswith("order") and case.set != "near others")]  # fmt: skip
    reader = Remembering(shipped_reader())
    present = {name: getattr(thresholds, name) for name in TRIED}
    tried = [present]
    if args.choose:
        tried += [present | {name: value} for name, values in TRIED.items() for value in values]
    about = context("CPU", ("numpy", "tokenizers"))
    rows = []
    for values in tried:
        for name, value in values.items():
            setattr(thresholds, name, value)
        for name, of in measure(cases, reader).items():
            columns = ("orders", "labelled", "otherwise", "asked", "refused", "other answer",
                       "near requests", "near")  # fmt: skip
            rows.append({"set": name, **values, **{column: of[column] for column in columns}})
            print(rows[-1], flush=True)
    write("order_thresholds", [row | about for row in rows])


if __name__ == "__main__":
    main()
