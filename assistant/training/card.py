"""Write the card of a trained model: what it is, its data, its training, its quality and its
limits.

Run it after training and evaluation; it writes FOLDER/README.md:

python -m assistant.training.card FOLDER
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assistant.intents.table import TOOLS
from assistant.training.evaluate import CONFUSION, EVALUATION
from assistant.training.phrasings import COMBINATIONS, TEMPLATES
from assistant.training.requests import LANGUAGES, PUZZLED
from assistant.training.train import ABOUT

_CARD = """---
license: apache-2.0
language: [{languages}]
library_name: gpudeck
tags: [rwkv7]
---
# The assistant's own small model

An RWKV-7 with {parameters:.1f} million parameters ({layers} layers of {channels} channels, a
vocabulary of its own). In the assistant it has one task: where the rules do not read a request
whole, it chooses which of {tools} tools the request needs, with its arguments, and
`assistant.intents.model_routes` turns that into a query or an order. It was also trained to write
briefs and answers from facts, which the figures on texts below measure; the assistant no longer
uses that. Answers are templates, and so are briefs and reports unless a model of at least a billion
parameters is chosen. It sees no numbers, names or commands. Requests come to it masked
(`assistant.intents.masks`) and without capitals, accents and typos (`assistant.intents.normalize`),
and facts as names (`assistant.writing.compact`). What it writes has slots that code fills and
checks.

## Data

A program made {samples:,} samples; training saw {tokens:,} tokens. Requests are in {count}
languages ({shares}), by the phrasings in `assistant/training/grammar/`, with typos, words left out,
slang and politeness. In {puzzled:.0%} of the longer ones a word is replaced with a meaningless one,
so that the model learns to use the others.

No training sample contains one in {combinations} of the combinations of a phrasing's choices; one
phrasing in {templates} as a whole (templates; their sentences with a word that no training sample
has are counted separately, as unheard); and some names. Machines are random, or an H100 as recorded
in `assets/h100.trace.gz` with random jobs. No text is from the internet or from a person's logs.
Large language models wrote most phrasings, without seeing what was held out before.

    python -m assistant.training.data FOLDER --samples {asked}
    python -m assistant.training.train FOLDER --device cuda \\
        --minutes {minutes:g} --rows {rows}{start}
    python -m assistant.training.evaluate FOLDER
    python -m assistant.training.card FOLDER

## Training

{steps:,} steps in {seconds:.0f} s on one {device}, including set-up and checkpoints; AdamW, from
{rate:g} to {last_rate:g} by a cosine. The loss of the last hundred steps is {loss:.4f}. The weights
are their moving average. On held-out requests (half combinations, half templates) the loss is
{held_loss:.4f}, and {held_exact:.1%} are right to the last token.{before}

## Evaluation

What "no false number" means: `make truth` and `tests/benchmarks/truth.py` draw random machines
whose jobs and devices have names, and put questions in words, that no training example has. An
oracle of its own, which shares nothing with the app's checker, asks of every number that is
shown: is it a fact of the device or job named last before it, and of the quantity that the words
beside it name? It does not judge claims without a number.{truth}

A program judges greedy texts. A text is faithful if it states only facts, and complete if it
mentions everything required, both at the first attempt. It counts as shown if the checker passes
it, after rewinding to before refused sentences; the template writes the others.

{table}

Routes of the held-out phrasings and the hand-written requests together:

{confusion}

## Limits

- It knows only its tools and its facts. Free chat, code and general knowledge are beyond it; it has
  a route for what it cannot do.
- It knows English best; it learnt {others} from fewer phrasings. Its texts are only English.
- It can route a request wrongly, above all one in unknown words. If it is not sure, the assistant
  asks back. Actions are only proposed, and a person approves them.
- The authors of the grammar also wrote the hand-written requests: those of other people will be
  harder.
"""
_BEFORE = """ It began with the weights
of the previous model: {steps:,} steps in {seconds:.0f} s on one {device}, {seen:,} tokens of
{samples:,} samples by the grammar at that time. A few of the phrasings that are held out today were
taught to the first of these models (20, by a count of November 2026)."""
FALSE_NUMBERS = "false numbers"
"""The key of the evaluation for what `tests/benchmarks/truth.py` counted, if it has been run."""
_TRUTH = """
Of {texts:,} texts that were counted so on {date}, the oracle reported {false}; what was found by
reading these stands in `tests/benchmarks/LOG.md`. The model wrote {model:,} of them, and the
template the others (`tests/benchmarks/results/truth.csv`)."""
_NAMES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish"}


def card(folder: Path) -> str:
    """Return the card, from training.json, evaluation.json and confusion.csv in the folder."""
    training: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    evaluation: dict[str, Any] = json.loads((folder / EVALUATION).read_text())
    plan = training["plan"]
    return _CARD.format(
        languages=", ".join(LANGUAGES),
        parameters=training["parameters"] / 1e6,
        layers=plan["layers"],
        channels=plan["channels"],
        tools=len(TOOLS),
        samples=training["samples"],
        tokens=training["tokens seen"],
        count=len(LANGUAGES),
        shares=", ".join(f"{_NAMES[name]} {share:.0%}" for name, share in LANGUAGES.items()),
        puzzled=PUZZLED,
        combinations=COMBINATIONS,
        templates=TEMPLATES,
        asked=round(training["samples"], -3),
        minutes=plan["minutes"],
        rows=plan["rows"],
        start=f" --start {plan['start']} --rate {plan['rate']:g} --warm-up {plan['warm_up']}"
        if "before" in training
        else "",
        before=_BEFORE.format(**training["before"], seen=training["before"]["tokens seen"])
        if "before" in training
        else "",
        steps=training["steps"],
        seconds=training["seconds"],
        device=training["device"],
        rate=plan["rate"],
        last_rate=plan["last_rate"],
        loss=training["loss"],
        held_loss=training["held-out loss"],
        held_exact=training["held-out exact"],
        truth=_TRUTH.format(**evaluation[FALSE_NUMBERS]) if FALSE_NUMBERS in evaluation else "",
        table=_scores(evaluation),
        confusion=_confusion(folder / CONFUSION),
        others=", ".join(_NAMES[name] for name in LANGUAGES if name != "en"),
    )


def _scores(evaluation: Mapping[str, Any]) -> str:
    """Return a table row for every share, and the counts."""
    rows = []
    for name, value in evaluation.items():
        if isinstance(value, float):
            rows.append((name, f"{value:.1%}"))
        elif isinstance(value, dict) and name not in ("counts", FALSE_NUMBERS):
            rows += [(f"{name}: {part}", f"{share:.1%}") for part, share in value.items()]
    rows += [(f"number of {name}", str(count)) for name, count in evaluation["counts"].items()]
    return _table(("", "share"), rows)


def _confusion(file: Path) -> str:
    with file.open(newline="", encoding="utf-8") as stored:
        head, *rows = csv.reader(stored)
    return _table(tuple(head), [tuple(row) for row in rows])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def main() -> None:
    """Write the card of the model in a folder."""
    parser = argparse.ArgumentParser(description="Write the card of a trained model.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    (folder / "README.md").write_text(card(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
