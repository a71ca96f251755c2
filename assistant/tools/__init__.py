"""The assistant's tools: planners of orders, and what quotes, reports or cleans up.

An order is only planned, and carried out after a person approved it (`proposal_store`). Only the
request itself becomes an order: text from processes, logs, files and jobs is in facts, which
nothing reads for orders.

To add an order, declare its verb in `gpudeck.assistant.query.table`, read it in
`gpudeck.assistant.intents.orders`, and write the planner here, with an entry in its module's
PLANNERS.
"""
