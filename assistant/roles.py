"""Which role a request needs. Rules a person can read: the first that matches decides, from the strongest sign to the weakest."""

from __future__ import annotations

import re
from typing import Literal

from scheduler import paths

Role = Literal["answer", "report", "housekeep", "operate"]

_POLITE = (
    r"(?:(?:please|kindly|now|just|hey|ok|okay|can you|could you|would you|will you|i want you to|i would like you to|let's|go and)[ ,]+)*"
)
_QUESTION = re.compile(r"(?:what|why|when|where|which|who|whose|how|is|are|was|were|did|does|do|has|have|had|will|should|any)\b")
_HOUSEKEEP = re.compile(
    r"\b(?:clean(?:ing|ed)?(?: up)?|tidy|free (?:up )?(?:the |some )?(?:disk|space)|"
    r"(?:delete|remove|purge|erase|throw away|get rid of|clear)\b.*"
    r"\b(?:files?|logs?|artefacts?|artifacts?|old|debris|caches?|checkpoints?|results?|leftovers?|junk))\b"
)
_OPERATE = re.compile(
    _POLITE
    + r"(?:cancel|stop|kill|abort|end|terminate|start|run|rerun|re-run|launch|submit|queue|enqueue|resubmit|retry|restart|pause|resume|"
    r"delete|remove|set|change|configure|benchmark|execute)\b"
)
_REPORT = re.compile(
    r"\b(?:report|brief|briefing|summar(?:y|ise|ize)|overview|recap|digest|write[- ]?up|status update)\b|"
    r"\bwhat(?:'s| has| is| did)? (?:happened|happen|been happening|been going on|been done|going on|new|i miss)\b|\bwhat did i miss\b|"
    r"\bcatch me up\b|\bhow did (?:it|things|everything) go\b"
)


def role_of(request: str) -> Role:
    """`operate`: it wants something done; `housekeep`: cleaned up; `report`: an account of what happened; else `answer`."""
    text = " ".join(request.lower().replace("’", "'").split())
    command = re.fullmatch(_POLITE + "(.*)", text)
    asks = _QUESTION.match(command[1] if command else text) is not None
    if not asks and _HOUSEKEEP.search(text):
        return "housekeep"
    if _REPORT.search(text):
        return "report"
    if not asks and _OPERATE.match(text):
        return "operate"
    return "answer"


def not_yet(role: Role, request: str) -> str | None:
    """For a role the assistant does not fill yet: a line that says so, with the command that does it now."""
    if role == "housekeep":
        return f"I do not clean up by myself yet. The files of all jobs are in {paths.home() / 'jobs'}: `du -sh` there shows their sizes."
    if role != "operate":
        return None
    job = re.search(r"\b(?:job|#)\s*#?(\d{1,18})\b", request, re.IGNORECASE)
    if re.search(r"\b(?:cancel|stop|kill|abort|end|terminate|delete|remove)\b", request, re.IGNORECASE):
        return f"I do not act on jobs by myself yet. To end one: `gpudeck cancel {job[1] if job else 'ID'}`"
    if re.search(r"\b(?:attention|gemm|copy|benchmark|workload)\b", request, re.IGNORECASE):
        found = re.search(r"\b(attention|gemm|copy)\b", request, re.IGNORECASE)
        return f"I do not start jobs by myself yet. To run one: `gpudeck run {found[1].lower() if found else 'WORKLOAD'}`"
    if re.search(r"\b(?:pause|resume|set|change|configure)\b", request, re.IGNORECASE):
        return "I do not change settings or the queue by myself yet. Open the Settings and Jobs pages of `gpudeck`."
    return "I do not start jobs by myself yet. To queue a command: `gpudeck submit -- CMD`"
