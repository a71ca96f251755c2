"""All planners by their verbs, as `gpudeck.assistant.query.table` declares them."""

from __future__ import annotations

import msgspec

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools import (
    bookings,
    clean_up,
    job_orders,
    queue_orders,
    submit,
    suspensions,
)
from gpudeck.assistant.tools.tool import Environment, PlannedAction, Planner, ToolContext
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

PLANNERS: dict[str, Planner] = {
    **job_orders.PLANNERS,
    **queue_orders.PLANNERS,
    **submit.PLANNERS,
    **clean_up.PLANNERS,
    **bookings.PLANNERS,
    **suspensions.PLANNERS,
}


def plan_action(context: ToolContext, order: Order) -> PlannedAction:
    """Plan an order, with the one that follows it. Raises NotFound and UserError, in one line."""
    if order.then is None:
        return PLANNERS[order.verb](context, order)
    first, second = (
        plan_action(context, one) for one in (msgspec.structs.replace(order, then=None), order.then)
    )

    def both(daemon: Client, environment: Environment) -> str:
        done = first.carry_out(daemon, environment)
        try:
            return f"{done} {second.carry_out(daemon, environment)}"
        except UserError as e:
            return f"{done} {context.words.text('Only this was done: {error}.', error=e)}"

    resolved = msgspec.structs.replace(first.order or order, then=second.order or order.then)
    return PlannedAction(
        f"{first.title}; {second.title}",
        f"{first.effect} {second.effect}",
        (first.basis, second.basis),
        both,
        (*first.details, *second.details),
        resolved,
        tuple(dict.fromkeys((*first.jobs, *second.jobs))),
        first.sealed or second.sealed,
    )
