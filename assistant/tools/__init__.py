"""What the assistant can do when it is asked to: tools of four roles, each with typed arguments.

A request becomes a `Call` (`route`: by the model, else by the `rules`); what only looks is answered from facts (`answers`), what
acts is proposed (`actions`), and carried out once a person approved it (`proposals`). Only the request itself is ever routed: text
from processes, logs, files and jobs is in facts, which nothing reads for orders.
"""
