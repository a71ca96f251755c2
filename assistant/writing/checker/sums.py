"""Check what several devices use together: the sum of a field of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.lengths import in_base_unit, step_of

_DECIMALS = re.compile(r"^-?\d+\.?(\d*)")
_TOGETHER = lexicon.words("together altogether combined")
_ADDED = lexicon.words("energy power power_limit mem_used mem_free mem_total tflops")


def check_sums(clause: Clause, of: Known) -> None:
    """Check every value of a clause that says `together` of several devices. Raises Refused."""
    words = [i for i, text in clause.words() if text in _TOGETHER]
    for place, token in enumerate(clause.tokens if words else ()):
        devices = owners(clause, place).get("device") or everyone(of, "device")
        given = in_base_unit(token.text) if token.kind == "value" else None
        if given is None or len(devices) < 2:
            continue
        family = next((f for f in lexicon.FAMILIES if given[1] in f), frozenset[str]()) & _ADDED
        if not family:
            continue
        named = {
            i: lexicon.FIELD_WORDS[text] & family
            for i, text in clause.words()
            if lexicon.FIELD_WORDS.get(text, frozenset()) & family
        }
        most = 0.5 * step_of(token.text) * 10.0 ** -len(_DECIMALS.findall(token.text)[0])
        sums = [s for f in frozenset[str]().union(*named.values()) for s in _sums(of, devices, f)]
        if not any(abs(total - given[0]) <= most for total in sums):
            raise Refused(f"it says {token.text!r} together, which is no sum of facts")
        clause.used |= {place, *words, *named}


def _sums(of: Known, devices: frozenset[str], field: str) -> Iterator[float]:
    """Yield the sum of the values, and that of the values as they are shown, which are rounded."""
    facts = [next(iter(of.of(device, field)), None) for device in devices]
    exact = [f.value for f in facts if f is not None and isinstance(f.value, int | float)]
    shown = [amount for f in facts if f is not None and (amount := in_base_unit(f.said))]
    if len(exact) == len(devices):
        yield sum(exact)
    if len(shown) == len(devices):
        yield sum(amount for amount, _ in shown)
