"""Learn which section of the manual answers the questions that people ask.

`data/sections.tsv` has, for requests of `requests.jsonl.gz`, the section that answers each.
`data/section_questions.tsv` has questions that were written for each section, in other words than
its own.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpudeck.assistant.reader.encoder import Array
from gpudeck.assistant.reader.reading import Reader
from gpudeck.assistant.retrieval.ranking import features_of
from gpudeck.assistant.retrieval.sections import GLOSSARY, Section, sections
from gpudeck.assistant.training.requests import examples, is_held_out

DATA = Path(__file__).with_name("data")
_STEPS, _RATE, _DECAY = 120, 0.03, 3e-4
_BETAS = 0.9, 0.999
_LONGEST = 200
"""Characters of a sentence."""
_GAIN = 10 / 1152**0.5
"""The deviation of a feature, so that the steps have the right size."""


class Asked(NamedTuple):
    """Hold a question with the place of the section that answers it."""

    profile: int
    language: str
    before: str
    """What was asked before it, with its meaning."""
    text: str
    place: str


def asked_questions() -> list[Asked]:
    """Return the questions whose section is known, in the order of the requests."""
    lines = (DATA / "sections.tsv").read_text(encoding="utf-8").splitlines()
    places = dict(line.split("\t") for line in lines)
    file = DATA / "requests.jsonl.gz"
    rows = map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines())
    return [Asked(one.profile, one.language, one.before, one.text, places[row["id"]])
            for row, one in zip(rows, examples(file), strict=True)
            if row["id"] in places]  # fmt: skip


def written_questions() -> list[tuple[str, str]]:
    """Return the questions that were written for sections, each with its section's place."""
    lines = (DATA / "section_questions.tsv").read_text(encoding="utf-8").splitlines()
    return [(place, text) for place, _language, text in (line.split("\t") for line in lines)]


def own_words(section: Section) -> tuple[str, ...]:
    """Return what stands for the questions of people: a section's heading and first sentence."""
    if section.page == GLOSSARY:
        return (f"what does {section.heading.replace('_', ' ')} mean",)
    prose = " ".join(re.sub(r"```.*?```", "", section.text, flags=re.S).split())
    return section.heading, re.split(r"(?<=[.:])\s", prose)[0][:_LONGEST]


def learnt_head(
    reader: Reader,
) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.float16], Array]:
    """Return places [K], weights [1152, K] and bias [K] of a head, without held-out profiles.

    Sections about which few ask are learnt by what was written for them, and by their own words.
    """
    asked = [(one.text, one.before, one.place) for one in asked_questions()
             if not is_held_out(one.profile)]  # fmt: skip
    asked += [(text, "", place) for place, text in written_questions()]
    asked += [(text, "", section.place) for section in sections() for text in own_words(section)]
    x = features_of([(text, before) for text, before, _ in asked], reader)
    places, wanted = np.unique([place for _, _, place in asked], return_inverse=True)
    mean, scale = x.mean(axis=0), x.std(axis=0) / _GAIN
    weights, bias = _fit((x - mean) / scale, wanted, len(places))
    weights /= scale[:, None]
    return places, weights.astype(np.float16), bias - mean @ weights


def _fit(x: Array, wanted: npt.NDArray[np.intp], classes: int) -> tuple[Array, Array]:
    """Return weights and bias of a softmax regression: [N, F] -> [F, K] and [K].

    Source: Adam (arXiv 1412.6980) over all rows at once.
    """
    x = np.concatenate((x, np.ones((len(x), 1), np.float32)), axis=1)
    weights = np.zeros((x.shape[1], classes), np.float32)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    rows = np.arange(len(x))
    for step in range(1, _STEPS + 1):
        logits = x @ weights
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[rows, wanted] -= 1
        slope = x.T @ chances / len(x)
        slope[:-1] += _DECAY * weights[:-1]
        first += (1 - _BETAS[0]) * (slope - first)
        second += (1 - _BETAS[1]) * (slope * slope - second)
        corrected = np.sqrt(second / (1 - _BETAS[1] ** step)) + 1e-8
        weights -= _RATE * first / (1 - _BETAS[0] ** step) / corrected
    return weights[:-1], weights[-1]
