"""The registry of all requests: the daemon's side of the decoding."""

from __future__ import annotations

from functools import cache, reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import Any

import msgspec

from gpudeck.scheduler import verbs
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.verbs.request import Request


class _Specs(msgspec.Struct):
    """The jobs in a request, undecoded."""

    spec: dict[str, msgspec.Raw] = {}
    specs: tuple[dict[str, msgspec.Raw], ...] = ()


MAX_VALUES = 1_000_000
"""Commas in a request, as the time to decode it grows with its values: more than those of the
largest submission."""
_SLICE = 2**20
_SPECS = msgspec.json.Decoder(_Specs)


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Return a decoder of every request that a module of this package defines."""
    for module in iter_modules(verbs.__path__, f"{verbs.__name__}."):
        import_module(module.name)
    return msgspec.json.Decoder(reduce(or_, Request.__subclasses__()))


def decode_request(line: bytes) -> Request[Any]:
    """Decode a request by its tag. Raises UserError where this daemon does not know it.

    A Spec with an unknown field is refused here alone: in the store it does no harm.
    """
    _check_values(line)
    try:
        request: Request[Any] = _decoder().decode(line)
        found = _SPECS.decode(line) if b'"spec' in line else _Specs()
    except MALFORMED as e:
        if str(e).startswith("Expected `"):  # msgspec names a value of another type or range so
            raise UserError(f"the daemon cannot carry out the request: {e}") from e
        raise _unknown(str(e)) from e
    for spec in (found.spec, *found.specs):
        if unknown := spec.keys() - set(Spec.__struct_fields__):
            raise _unknown(f"a job has no {', '.join(sorted(unknown))}")
    return request


def _check_values(line: bytes) -> None:
    """Raise UserError where a request has too many values; the rest of it is not read."""
    commas = 0
    for start in range(0, len(line), _SLICE):
        commas += line.count(b",", start, start + _SLICE)
        if commas > MAX_VALUES:
            raise UserError(
                f"a request has up to {MAX_VALUES} values. Name fewer jobs, or submit fewer at once"
            )


def _unknown(why: str) -> UserError:
    return UserError(
        f"this daemon does not know the request: {why}. Client and daemon may differ in version; "
        "try: gpudeck daemon stop"
    )
