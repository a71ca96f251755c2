"""Turn composed requests into tokens: what came before, the request, and what it means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from string import ascii_lowercase

import numpy as np
import numpy.typing as npt

from gpudeck.assistant.intents.repair import WORDS
from gpudeck.assistant.router.symbols import canonical
from gpudeck.assistant.router.vocabulary import AGAIN, ASK, END, MEANS, Vocabulary, words
from gpudeck.assistant.training.composer import Composer
from gpudeck.assistant.training.phrases import NUMBERED, SLOT_KINDS
from gpudeck.assistant.training.quantities import KINDS

_TYPOS = 0.12
"""The share of requests with a typo."""
_SLOT = re.compile(rf"\b([{SLOT_KINDS}])\d\b")


def mistyped(random: Random, text: str) -> str:
    """Return a request with a typo or two: a letter left out, doubled, swapped or replaced."""
    parts = text.split()
    long = [i for i, word in enumerate(parts) if len(word) > 3 and word.isalpha()]
    for i in random.sample(long, min(len(long), random.choice((1, 1, 2)))):
        word = parts[i]
        at = random.randrange(1, len(word) - 1)
        parts[i] = random.choice((
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + random.choice(ascii_lowercase) + word[at + 1 :],
        ))  # fmt: skip
    return " ".join(parts)


def samples(
    seed: int, count: int, vocabulary: Vocabulary, twice: bool, fillers: Sequence[str]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int32]]:
    """Return the tokens of examples in a row, and the lengths of each prompt and whole example."""
    composer, random = Composer(seed, fillers), Random(seed + 1)
    tokens: list[int] = []
    lengths: list[tuple[int, int]] = []
    for _ in range(count):
        found = composer.example()
        request = mistyped(random, found.request) if random.random() < _TYPOS else found.request
        try:
            start = vocabulary.prompt(found.before, request, twice, random)
            whole = [*start, *vocabulary.meaning(canonical(found.meaning)), END]
        except KeyError:
            continue  # a rare meaning that the vocabulary has no symbol for
        tokens += whole
        lengths.append((len(start), len(whole)))
    return np.array(tokens, np.uint16), np.array(lengths, np.int32)


def shapes(count: int) -> list[str]:
    """Return the meanings of composed examples with `#n` for a slot: decoding is bound to them."""
    composer, found = Composer(99), set[str]()
    for _ in range(count):
        for side in canonical(composer.example().meaning).split(" & "):
            found.add(_SLOT.sub(lambda slot: f"#{slot[1]}", side))
    return sorted(found)


def make_vocabulary(count: int, size: int) -> Vocabulary:
    """Return the vocabulary of composed examples, with at most `size` pieces of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    composer = Composer(7)
    symbols = {ASK, AGAIN, MEANS, *(f"({kind})" for kind in KINDS)}
    symbols |= {f"{kind}{number}" for kind in SLOT_KINDS for number in NUMBERED}
    symbols |= {f"<{kind}{number}>" for kind in SLOT_KINDS for number in NUMBERED}
    texts: list[str] = []
    for _ in range(count):
        found = composer.example()
        symbols |= {*canonical(found.meaning).split(), *found.before.split()}
        texts.append(_plain(found.request))
    for language in composer.languages:
        symbols.update(s for rule in language.rules for s in canonical(rule.meaning).split())
        texts += [_plain(text) for group in language.names.values() for text in group]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁")
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, min_frequency=2)
    tokenizer.train_from_iterator(texts, trainer)
    letters = {*ascii_lowercase, *"0123456789%/+°#&"}
    pieces = {piece.replace("▁", " ") for piece in tokenizer.get_vocab()}
    pieces |= {*letters, *(f" {letter}" for letter in letters), " "}
    return Vocabulary(sorted(s for s in symbols if s[0] != "@"), sorted(pieces))


def _plain(text: str) -> str:
    """Return the words of a text without slots."""
    return " ".join(word for word in words(text) if word[0] not in "<(")


def fillers() -> list[str]:
    """Return words that mean nothing to the program, which people use nevertheless."""
    known: set[str] = set()
    for language in Composer(0).languages:
        texts = [text for group in language.names.values() for text in group]
        texts += [text for rule in language.rules for text in rule.requests]
        known.update(word for text in texts for word in words(text))
    frequent = (words(word) for word in WORDS.read_text(encoding="utf-8").split()[:12000])
    alone = (found[0] for found in frequent if len(found) == 1)
    return [word for word in alone if len(word) > 3 and word.isalpha() and word not in known]
