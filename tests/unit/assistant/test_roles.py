"""The role of a request, in the ways people word it."""

from __future__ import annotations

import pytest

from assistant.intents.roles import role_of

REQUESTS = {
    "answer": [
        "how hot is the GPU?",
        "why is job 7 waiting?",
        "Is the device idle",
        "did anything fail?",
        "how much memory is free",
        "GPU temperature",
        "what runs now?",
        "when did job 3 stop?",
        "which job was cancelled last?",
        "can you tell me how fast job 4 was?",
        "who uses gpu 1?",
        "why did my run stop",
        "What’s the power draw right now?",
        "has the queue been paused?",
        "is the disk full of old logs?",
        "what was cleaned up yesterday?",
        "",
        "???",
    ],
    "report": [
        "what happened?",
        "What has happened since noon",
        "write me a brief",
        "please summarize the last hour",
        "give me a report",
        "an overview, please",
        "catch me up",
        "what did I miss?",
        "What's new?",
        "how did it go?",
        "could you write up what the machine did",
        "summary",
        "what’s been going on?",
    ],
    "housekeep": [
        "clean up",
        "please tidy the house",
        "delete old logs",
        "can you free some disk space?",
        "remove the artefacts of job 4",
        "get rid of the debris",
        "purge leftovers",
        "Clear the cache",
        "throw away the results of last week",
        "what can be cleaned up?",
        "How much space can I free?",
    ],
    "operate": [
        "cancel job 7",
        "please stop the training",
        "kill it",
        "run attention",
        "Could you start a gemm with size 4096?",
        "submit python train.py",
        "pause the queue",
        "set the theme to dark",
        "would you please restart job 3",
        "ok, launch the copy benchmark",
        "abort #12",
        "now resume",
    ],
}


@pytest.mark.parametrize(
    ("role", "request_text"), [(role, text) for role, texts in REQUESTS.items() for text in texts]
)
def test_the_role_of_a_request(role, request_text) -> None:
    assert role_of(request_text) == role
