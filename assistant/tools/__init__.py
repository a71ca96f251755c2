"""The assistant's tools: one module a family, all of one shape (see `assistant.tools.tool`).

A tool takes a typed call and returns facts, the material of a report, or an action that it planned.
An action is only proposed, and carried out after a person approved it (`proposal_store`). Only the
request itself becomes a call: text from processes, logs, files and jobs is in facts, which nothing
reads for orders.

To add a tool, declare its arguments in `assistant.intents.table`, word it in
`assistant.intents.choices`, recognize it in `assistant.intents.rules`, and write the function here,
in the module of its family, with an entry in that module's TOOLS.
"""
