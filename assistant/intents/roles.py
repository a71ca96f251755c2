"""Recognize the role of a request by rules. The first that matches decides, the strongest first."""

from __future__ import annotations

import re
from typing import Literal

Role = Literal["answer", "report", "housekeep", "operate"]

_POLITE = (
    r"(?:(?:please|kindly|now|just|hey|ok|okay|can you|could you|would you|will you|i want you"
    r" to|i would like you to|let's|go and)[ ,]+)*"
)
_QUESTION = re.compile(
    r"(?:what|why|when|where|which|who|whose|how|is|are|was|were|did|does|do|has|have|had"
    r"|will|should|any)\b"
)
_HOUSEKEEP = re.compile(
    r"\b(?:(?:undo|take back|revert) (?:the |that |my |last )*(?:clean|trash|delet|remov)\w*|"
    r"clean(?:ing|ed)?(?: up)?|tidy|free (?:up )?(?:the |some )?(?:disk|space)|"
    r"(?:delete|remove|purge|erase|throw away|get rid of|clear)\b.*"
    r"\b(?:files?|logs?|artefacts?|artifacts?|old|debris|caches?|checkpoints?|results?"
    r"|leftovers?|junk|dumps?)|"
    r"leftovers|(?:duplicate|zombie|orphan(?:ed)?) \w+)\b"
)
_CLEANABLE = re.compile(
    r"(?:what|which (?:files|logs|caches)|how much(?: space| disk)*) (?:can|could|may|should) "
    r"(?:i |we |you |safely |be )*(?:clean|tid(?:y|ied)|delet|remov|free|purg)"
)
"""Questions about what can be cleaned up."""
_OPERATE = re.compile(
    _POLITE + r"(?:cancel|stop|kill|abort|end|terminate|nuke|start|run|rerun|re-run|launch|submit"
    r"|queue(?! (?:status|state|length)\b)|enqueue|"
    r"resubmit|retry|restart|do (?:the|my) last (?:job|run) again|pause|resume|delete"
    r"|remove|set|change|configure|benchmark|execute|"
    r"measure|tune|move|put|bring|bump|prioriti[sz]e|hold|release|freeze|unfreeze|unpause"
    r"|suspend|continue|carry on|go on with|call off|"
    r"(?:do not|don't) start|no (?:more|new) jobs|let job|(?:get rid of|give|clear) (?:the "
    r"|all )?(?:job|queue|#)|"
    r"(?:job |pid |process |#)\S+ (?:is urgent|should go|cancel|stop|kill|abort|hold|pause"
    r"|resume|release|retry|to the))\b"
)
_REPORT = re.compile(
    r"\b(?:report|brief|briefing|summar(?:y|ise|ize)|overview|recap|digest|gist|tl;?dr"
    r"|write[- ]?up|status update)\b|"
    r"\bwhat(?:'s| has| is| did)? (?:happened|happen|been happening|been going on|been done"
    r"|going on|new|i miss)\b|\bwhat did i miss\b|"
    r"\bcatch me up\b|\bhow did (?:it|things|everything) go\b"
)


def is_order(text: str) -> bool:
    """Return whether a text is nothing but a command word, such as `cancel`."""
    return _OPERATE.fullmatch(text.lower().strip()) is not None


def role_of(request: str) -> Role:
    """Return the role of a request: to operate, to clean up, to report, or else to answer."""
    text = " ".join(request.lower().replace("’", "'").split())
    command = re.fullmatch(_POLITE + "(.*)", text)
    asks = _QUESTION.match(command[1] if command else text) is not None
    if _CLEANABLE.match(text) or (not asks and _HOUSEKEEP.search(text)):
        return "housekeep"
    if _REPORT.search(text):
        return "report"
    if not asks and _OPERATE.match(text):
        return "operate"
    return "answer"
