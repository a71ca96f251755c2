"""What the logs of jobs and the manual say, word for word, with the place. Foreign text: shown as it is, and read by nothing."""

from __future__ import annotations

import re
import time

from assistant.facts import phrases
from assistant.facts.fact import FactBuilder
from assistant.facts.index import FactIndex
from assistant.intents.tool_call import ToolCall
from assistant.retrieval import Passage, Where, quoted, search
from assistant.tools.job_lookup import find_job
from assistant.tools.tool import ToolResult
from assistant.writing.template import jobs as words
from assistant.writing.template.sentences import table
from scheduler.client import Client
from scheduler.protocol.jobs import Job

LOG_LINES = 20
LOG_BYTES = 16 * 1024
_ASKING = re.compile(r"\b(?:mention|print|say|said|show|line|contain)\w*\b", re.IGNORECASE)
"""Words that ask for what a log says, and are not looked for in it."""


def log(daemon: Client, call: ToolCall, question: str) -> ToolResult:
    """The lines of a job's log that have the words of the question, with file and line, then its end; without a job, of the newest logs.

    Foreign text: shown as it is, and read by nothing.
    """
    named = call.job()
    job = find_job(daemon, named) if named is not None else None
    about = question.replace(named, "") if isinstance(named, str) else question
    quotes = quotation(
        search(_ASKING.sub(" ", about), "logs", job.id if job is not None else None), "logs"
    )
    if job is None and quotes.facts:
        return quotes
    end = _end(daemon, job or find_job(daemon, "last"))
    if not quotes.facts:
        return end
    return ToolResult(
        (*quotes.facts, *end.facts),
        lambda index: [*quotes.say(index), *end.say(index)],
        quotes=True,
    )


def _end(daemon: Client, job: Job) -> ToolResult:
    """What it printed last."""
    shown = [line for line in phrases.log_lines(daemon.log(job.id, -LOG_BYTES, LOG_BYTES)) if line][
        -LOG_LINES:
    ]
    add = FactBuilder(f"job{job.id}", f"Job {job.id}", f"the log of job {job.id}", time.time())
    add.value("called", "called", job.id, "", f"Job {job.id}")
    add.text("state", "state", job.status)
    for i, line in enumerate(shown):
        add.text(f"log{i}", "printed", line)

    def say(index: FactIndex) -> list[str]:
        who, lines = words.title(f"job{job.id}"), index.texts(f"job{job.id}.log")
        return (
            [f"The last output of {who}:", table(("Output",), [(line,) for line in lines])]
            if lines
            else [f"{who} printed nothing."]
        )

    return ToolResult(tuple(add.facts), say, quotes=True)


def quotation(passages: tuple[Passage, ...], where: Where) -> ToolResult:
    """What was looked up, word for word, and where."""
    add = FactBuilder(where, "", "", time.time())
    for i, passage in enumerate(passages):
        add.source = passage.cite
        add.text(f"passage{i}", passage.heading or passage.file, passage.text)
    return ToolResult(tuple(add.facts), lambda _: [quoted(passages, where)], quotes=True)
