"""List the words that a model is taught, with which `assistant.intents.normalize` corrects typos.

Run it when the grammar changes:

python -m assistant.training.words
"""

from __future__ import annotations

import re
from collections import Counter

from assistant.intents.normalize import SHORTEST, WORD, WORDS, bare
from assistant.training.phrasings import grammar, lines, sentences
from assistant.training.requests import LANGUAGES

_MARK = re.compile(r"<\w+>|%\w")


def taught() -> list[str]:
    """Return the words of learnt lines, most common first."""
    counts: Counter[str] = Counter()
    for language in LANGUAGES:
        known = grammar(language)
        listed = (line.text for entries in known.lists.values() for line in entries)
        learnt = (line.text for section in lines(language, "learnt").values() for line in section)
        for text in (*listed, *learnt, *known.same):
            counts.update(
                {
                    word
                    for said in sentences(_MARK.sub("{}", text))
                    for word in WORD.findall(bare(said))
                }
            )
    whole = (word for word in counts if len(word) >= SHORTEST - 1 and word.isalpha())
    return sorted(whole, key=lambda word: (-counts[word], word))


if __name__ == "__main__":
    WORDS.write_text("".join(f"{word}\n" for word in taught()), encoding="utf-8")
