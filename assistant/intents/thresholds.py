"""From which probabilities of the encoder on a request is answered, proposed or asked back.

They belong to the weights: after a training, `python -m tests.benchmarks.order_thresholds` says
which values of FILLER and PLAIN are sound.
"""

from __future__ import annotations

SURE = 0.75
"""From this probability on a request is answered or proposed without asking back."""
CERTAIN = 0.85
"""Below this probability an answer says what was understood."""
LIKELY = 0.4
"""From this probability on small talk is answered, and the manual asked."""
DOUBTFUL = 0.7
"""The same for what is none of the program's business."""
ALONE = 0.4
"""From this probability on a question is answered if nothing else can be meant."""
GUESSED = 0.6
"""From this probability on a question that may be another one is answered, with how it was read."""
CLEAR = 0.35
"""From this probability of a request as a whole on it is answered without asking back."""
LONE_ORDER = 0.6
"""The same for an order for now that names what it is for."""
OFFERED = 0.25
"""An order of a head below this probability is no choice."""
LEAST = 0.1
"""A head below this probability is no choice."""
HARDLY = 0.001
"""The same for a request that is unclear."""
FILLER = 0.9
"""From this probability of no field on a word of an order needs no place in it."""
NO_NAME = 0.95
"""The same for a word that is a name, too."""
PLAIN = 0.94
"""From this probability of an order for now on no single word forbids it or takes it back."""
NEW_JOB = 0.92
"""From this one on a new job's command and options are the encoder's where phrases leave words."""
UNCONDITIONAL = 0.97
"""From this one on no word such as `if` makes it depend on something."""
