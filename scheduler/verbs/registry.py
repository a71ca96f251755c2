"""The registry of all requests: the daemon's side of the decoding."""

from __future__ import annotations

from functools import cache, reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import Any

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler import verbs
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.setting_problems import range_problem
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.verbs.request import Request
from gpudeck.scheduler.verbs.submit import RawSubmission, SubmitMany

MAX_VALUES = 1_000_000
"""Commas in a request, as the time to decode it grows with its values: more than those of the
largest submission."""
_SLICE = 2**20
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPEC = msgspec.json.Decoder(Spec)


class _OneSpec(msgspec.Struct):
    """The job in a request, undecoded."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")


_ONE = msgspec.json.Decoder(_OneSpec)


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Return a decoder of every request that a module of this package defines."""
    for module in iter_modules(verbs.__path__, f"{verbs.__name__}."):
        import_module(module.name)
    kinds = {kind for kind in Request.__subclasses__() if kind is not SubmitMany}
    return msgspec.json.Decoder(reduce(or_, kinds, RawSubmission))


def decoding(line: bytes) -> Work[Request[Any]]:
    """Decode a request by its tag, part by part.

    A Spec with an unknown field is refused here alone: in the store it does no harm. Raises
    UserError where this daemon does not know the request.
    """
    yield from _check_values(line)
    try:
        request: Request[Any] | RawSubmission = _decoder().decode(line)
        yield
        if isinstance(request, RawSubmission):
            return (yield from _whole(request))
        if b'"spec' in line:
            _check_fields(_ONE.decode(line).spec)
    except MALFORMED as e:
        if str(e).startswith("Expected `"):  # msgspec names a value of another type or range so
            what, _, where = str(e).partition(" - at ")
            outside = range_problem(what, where.rpartition(".")[2].strip("`"))
            raise UserError(
                outside or phrase("the daemon cannot carry out the request: {error}", error=str(e))
            ) from e
        raise _unknown(str(e)) from e
    return request


def _whole(request: RawSubmission) -> Work[SubmitMany]:
    specs: list[Spec] = []
    for part in parts(request.specs):
        for raw in part:
            specs.append(_SPEC.decode(raw))
            _check_fields(raw)
        yield
    return SubmitMany(tuple(specs), request.env, request.token)


def _check_fields(spec: msgspec.Raw) -> None:
    """Raise UserError where a job has a field that this daemon does not know."""
    if unknown := _FIELDS.decode(spec).keys() - set(Spec.__struct_fields__):
        raise _unknown(f"a job has no {', '.join(sorted(unknown))}")


def _check_values(line: bytes) -> Work[None]:
    """Raise UserError where a request has too many values; the rest of it is not read."""
    commas = 0
    for start in range(0, len(line), _SLICE):
        commas += line.count(b",", start, start + _SLICE)
        if commas > MAX_VALUES:
            raise UserError(
                phrase(
                    "a request has up to {most} values. Name fewer jobs, or submit fewer at once",
                    most=MAX_VALUES,
                )
            )
        yield


def _unknown(why: str) -> UserError:
    return UserError(
        phrase(
            "this daemon does not know the request: {why}. Client and daemon may "
            "differ in version; try: gpudeck daemon stop",
            why=why,
        )
    )
