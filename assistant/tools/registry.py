"""All planners by their verbs, as `gpudeck.assistant.query.table` declares them."""

from __future__ import annotations

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.tools import (
    bookings,
    clean_up,
    job_orders,
    queue_orders,
    submit,
    suspensions,
)
from gpudeck.assistant.tools.tool import PlannedAction, Planner, ToolContext

PLANNERS: dict[str, Planner] = {
    **job_orders.PLANNERS,
    **queue_orders.PLANNERS,
    **submit.PLANNERS,
    **clean_up.PLANNERS,
    **bookings.PLANNERS,
    **suspensions.PLANNERS,
}


def plan_action(context: ToolContext, order: Order) -> PlannedAction:
    """Plan an order. Raises NotFound and UserError, in one line."""
    return PLANNERS[order.verb](context, order)
