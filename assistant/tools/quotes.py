"""Tools that quote the logs of jobs and the manual word for word, each with its place.

Foreign text is shown as it is, and nothing reads it for orders.
"""

from __future__ import annotations

import re
import time

from assistant.facts import phrases
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.intents.tool_call import ToolCall
from assistant.retrieval import Passage, Where, quoted, search
from assistant.tools.help_texts import EXAMPLES
from assistant.tools.lookup import find_job
from assistant.tools.tool import ToolContext, ToolResult, Tools, text_result
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import table
from scheduler.client import Client
from scheduler.protocol.jobs import Job

_LOG_LINES = 20
_LOG_BYTES = 16 * 1024
_ASKING = re.compile(r"\b(?:mention|print|say|said|show|line|contain)\w*\b", re.IGNORECASE)
"""Words that ask for the content of a log, and are not searched for in it."""


def log(context: ToolContext, call: ToolCall) -> ToolResult:
    """Quote the lines of a job's log that have the words of the question, then the end of the log.

    If the call names no job, the newest logs are searched.
    """
    daemon, named = context.daemon, call.job()
    job = find_job(daemon, named) if named is not None else None
    about = context.question
    if isinstance(named, str):
        about = about.replace(named, "")
    words_only = _ASKING.sub(" ", about)
    passages = search(words_only, "logs", job.id if job is not None else None)
    found = _quote(passages, "logs")
    if job is None and found.facts:
        return found
    end = _end_of_log(daemon, job or find_job(daemon, "last"))
    if not found.facts:
        return end
    return ToolResult(
        (*found.facts, *end.facts),
        lambda index: [*found.render(index), *end.render(index)],
        verbatim=True,
    )


def docs(context: ToolContext, call: ToolCall) -> ToolResult:
    """Quote the manual on the question."""
    found = _quote(search(context.question), "docs")
    if not found.facts:
        return text_result("The manual has nothing about that.", EXAMPLES)
    return found


def _end_of_log(daemon: Client, job: Job) -> ToolResult:
    lines = phrases.log_lines(daemon.log(job.id, -_LOG_BYTES, _LOG_BYTES))
    shown = [line for line in lines if line][-_LOG_LINES:]
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", f"the log of job {job.id}", time.time())
    add.value("called", "called", job.id, "", f"Job {job.id}")
    add.text("state", "state", job.status)
    for i, line in enumerate(shown):
        add.text(f"log{i}", "printed", line)

    def render(index: FactIndex) -> list[str]:
        title, printed = words.title(f"job{job.id}"), index.texts(f"job{job.id}.log")
        if not printed:
            return [f"{title} printed nothing."]
        return [f"The last output of {title}:", table(("Output",), [(line,) for line in printed])]

    return ToolResult(tuple(add.facts), render, verbatim=True)


def _quote(passages: tuple[Passage, ...], where: Where) -> ToolResult:
    """Return passages word for word, each with its place."""
    add = FactBuilder(where, "", "", time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.text(f"passage{i}", passage.heading or passage.file, passage.text)
    return ToolResult(tuple(add.facts), lambda _: [quoted(passages, where)], verbatim=True)


TOOLS: Tools = {("answer", "log"): log, ("answer", "docs"): docs}
