"""Queries and orders as JSON, which other programs and language models write.

The schemas are made from `Query` and `Order` themselves, so that what can be asked and ordered here
is what can be asked and ordered anywhere. Programs get a tool for queries and one for each verb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from gpudeck.assistant.query.request import Order, Query, Span
from gpudeck.assistant.query.table import (
    AGGREGATES,
    ROWS,
    SUBJECTS,
    USES,
    VERBS,
    WORKLOADS,
    check,
)
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS
from gpudeck.scheduler.protocol.search import OUTCOMES

MOST_HOURS = 10 * 366 * 24.0
"""Ten years; readings are kept for a month, jobs for longer."""
MOST_BYTES = 2.0**50
Schema = dict[str, Any]
T = TypeVar("T")

_ABOUT_FIELDS = {
    "subject": "one of the subjects", "measure": "a measure of the subject; empty: its headline",
    "measures": "several measures of the same rows", "last_hours": "of the time up to now",
    "devices": "indices of GPUs; none: all", "jobs": "numbers or names of jobs",
    "states": "states of jobs, or idle or busy for devices", "group": "a group of jobs",
    "aggregate": f"one of {', '.join(AGGREGATES)}; empty: every row",
    "limit": "the most rows; 0: all; with the measure log: the last lines, with the order up: "
             "the first lines", "gpus": "for capacity: how many GPUs the job would need",
    "amount": "for capacity: bytes on each GPU; for conversion: the value",
    "exclude": "jobs that stay as they are", "place": "first, last, before or after",
    "beside": "the job that it is moved before or after", "command": "the command, as in a shell",
    "workload": f"in place of a command, one of {', '.join(WORKLOADS)}",
    "params": "parameters of the workload",
    "options": "options of the job by name, written as on the command line: "
               f"{', '.join(option.name for option in JOB_OPTIONS)}, and array, such as 0-9; of a "
               "booking: begin, until, group",
    "number": "a PID, an alert, a priority, or the limit of a group",
    "setting": "the name of a setting", "text": "a note, the value of a setting, or a name",
}  # fmt: skip


class Asked(Query, frozen=True, omit_defaults=True, tag="query"):
    """A query, in which a time may be said as a number of hours up to now, and several measures
    at once, each of which is a column."""

    last_hours: float = 0.0
    measures: tuple[str, ...] = ()


class Submitted(Order, frozen=True, omit_defaults=True, tag="order"):
    """An order, with the folder in which a new job runs."""

    folder: str = ""


class ToolSchema(NamedTuple):
    """Describe a tool."""

    name: str
    about: str
    schema: Schema


def query_tool() -> ToolSchema:
    """Return the tool that returns rows."""
    lines = (
        f"{name} ({SUBJECTS[name].about}): {', '.join(SUBJECTS[name].measures) or 'no measures'}"
        for name in SUBJECTS
        if name not in ("conversion", "manual")
    )
    about = (
        "Return rows or a text about GPUs or jobs. Subjects and their measures:\n"
        + "\n".join(lines)
        + f"\nmanual ({SUBJECTS['manual'].about}): a question in text"
    )
    return ToolSchema("query", about, _schema(Asked, lambda field: field != "type", ("subject",)))


def order_tools() -> tuple[ToolSchema, ...]:
    """Return a tool for each verb; its arguments are the fields of an order that the verb takes."""
    return tuple(
        ToolSchema(
            verb,
            f"Propose to {of.about}. Nothing is done before a person approves it.",
            _schema(Submitted, _fields_of(verb).__contains__, ()),
        )
        for verb, of in VERBS.items()
    )


def _fields_of(verb: str) -> frozenset[str]:
    return frozenset((*VERBS[verb].takes, *(("folder",) if verb == "submit" else ())))


def _schema(of: type, wanted: Callable[[str], bool], required: tuple[str, ...]) -> Schema:
    """Return the schema of a struct's wanted fields, as that of a tool's arguments."""
    _, parts = msgspec.json.schema_components([of], ref_template="#/$defs/{name}")
    own = parts[of.__name__]
    fields = {
        name: schema | ({"description": _ABOUT_FIELDS[name]} if name in _ABOUT_FIELDS else {})
        for name, schema in own["properties"].items()
        if wanted(name)
    }
    return {
        "type": "object", "properties": fields, "required": list(required),
        "additionalProperties": False, "$defs": parts,
    }  # fmt: skip


def read_query(arguments: Mapping[str, Any], now: float) -> Query:
    """Return the query of a tool's arguments. Raises UserError for what it does not allow."""
    asked = _converted({"type": "query", **arguments}, Asked)
    if not 0 <= asked.last_hours <= MOST_HOURS:
        raise UserError(f"last_hours is from 0 to {MOST_HOURS:.0f}; got {asked.last_hours:g}")
    if min(asked.limit, asked.gpus, *asked.devices, *_numbers(asked), 0) < 0:
        raise UserError("a limit, a count, and the numbers of GPUs and jobs are 0 or more")
    if not 0 <= asked.amount <= MOST_BYTES:
        raise UserError(f"amount is from 0 to {MOST_BYTES:.0f}; got {asked.amount:g}")
    fields = {name: getattr(asked, name) for name in Query.__struct_fields__}
    if asked.last_hours > 0:
        fields["time"] = Span(now - 3600.0 * asked.last_hours, now)
    return check(Query(**fields))


def read_queries(arguments: Mapping[str, Any], now: float) -> tuple[Query, ...]:
    """Return a query for each measure of a tool's arguments. Raises UserError as `read_query`."""
    query = read_query(arguments, now)
    measures = tuple(dict.fromkeys(arguments.get("measures", ())))
    each = (check(msgspec.structs.replace(query, measure=measure)) for measure in measures)
    return tuple(each) or (query,)


def read_order(verb: str, arguments: Mapping[str, Any]) -> Submitted:
    """Return the order of a tool's arguments. Raises UserError for what the verb does not take."""
    takes = _fields_of(verb)
    if unknown := sorted(set(arguments) - takes):
        raise UserError(f"{verb} takes no {', '.join(unknown)}; it takes {', '.join(takes)}")
    order = _converted({"type": "order", "verb": verb, **arguments}, Submitted)
    if min(*order.devices, *_numbers(order), 0, 0) < 0:  # elsewhere -1 is the newest job
        raise UserError("the numbers of GPUs and jobs are 0 or more")
    return order


def _numbers(request: Query | Order) -> tuple[int, ...]:
    named = (*request.jobs, *(request.exclude if isinstance(request, Order) else ()))
    return tuple(job for job in named if isinstance(job, int))


def _converted(arguments: Mapping[str, Any], of: type[T]) -> T:
    try:
        return msgspec.convert(dict(arguments), of)
    except MALFORMED as e:
        raise UserError(str(e)) from e


_MOST_LETTERS, _MOST_ITEMS, _MOST_NUMBER = 80, 8, 10**9
"""Bounds of what a model writes, so that an answer ends."""
_SHAPES = ("aggregate", "extreme", "limit", "last_hours", "text", "gpus", "amount")
"""Fields of a query that are no filters of its subject."""
_OWN = ("states", "aggregate", "where", "time")
"""Fields with a schema of their own, and those that have parts; times are told by `last_hours`."""


def request_schema() -> Schema:
    """Return the schema of a query, an order, or `{"unknown": true}`, for a language model."""
    choices = [_choice("subject", name, _asked_of(name)) for name in ROWS]
    choices += [_choice("verb", tool.name, tool.schema["properties"]) for tool in order_tools()]
    return {"anyOf": [*choices, _choice("unknown", True, {})]}


def _asked_of(subject: str) -> dict[str, Schema]:
    """Return the schemas of the fields of a query about a subject."""
    given: dict[str, Schema] = query_tool().schema["properties"]
    fields = {name: given[name] for name in (*SUBJECTS[subject].filters, *_SHAPES)
              if name in given and name not in _OWN}  # fmt: skip
    own: dict[str, Schema] = {
        "measure": {"enum": ["", *SUBJECTS[subject].measures]},
        "states": {"type": "array", "items": {"enum": [*OUTCOMES, *USES]}},
        "aggregate": {"enum": list(AGGREGATES)},
    }
    return own | fields


def read_request(text: str, now: float) -> Query | Order | None:
    """Return the request that a model wrote as JSON; None if it says that it knows none.

    Raises UserError for what is no JSON, or no query or order.
    """
    try:
        written = msgspec.json.decode(text, type=dict[str, Any])
    except MALFORMED as e:
        raise UserError(str(e)) from e
    if written.get("verb") in VERBS:
        order = read_order(str(written.pop("verb")), written)
        return Order(**{name: getattr(order, name) for name in Order.__struct_fields__})
    return None if "unknown" in written else read_query(written, now)


def _choice(name: str, value: object, fields: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object whose kind the field `name` says, with bounded fields."""
    bounded = {field: _bounded(schema) for field, schema in fields.items() if field != "params"}
    if "options" in bounded:
        text = {"type": "string", "maxLength": _MOST_LETTERS}
        named = dict.fromkeys(("until", *(option.name for option in JOB_OPTIONS)), text)
        bounded["options"] = _object(named, ())
    return _object({name: {"const": value}, **bounded}, (name,))


def _object(fields: Mapping[str, Schema], required: tuple[str, ...]) -> Schema:
    return {"type": "object", "properties": dict(fields), "required": list(required),
            "additionalProperties": False}  # fmt: skip


def _bounded(schema: Schema) -> Schema:
    """Return a schema without descriptions and defaults, whose values have an end."""
    if "enum" in schema:
        return {"enum": schema["enum"]}
    if "anyOf" in schema:
        return {"anyOf": [_bounded(one) for one in schema["anyOf"]]}
    match schema["type"]:
        case "string":
            return {"type": "string", "maxLength": _MOST_LETTERS}
        case "array":
            return {"type": "array", "items": _bounded(schema["items"]), "maxItems": _MOST_ITEMS}
        case "integer":
            return {"type": "integer", "minimum": 0, "maximum": _MOST_NUMBER}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": _MOST_NUMBER}
    return {"type": schema["type"]}
