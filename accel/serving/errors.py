"""Name the errors of serving. Each message is one line that says what is wrong and what to do."""

from __future__ import annotations


class ModelRefused(ValueError):
    """Report a model's folder that cannot be served, and why."""


class RequestRefused(ValueError):
    """Report a request that cannot be served, and why."""


class TooLong(RequestRefused):
    """Report a prompt, or a prompt and its answer, that do not fit."""


NOT_FINITE = "the model's output is not finite: its weights are damaged, or overflow in this type"
