"""Make a small vocabulary by byte-pair encoding, in the format of the World vocabulary.

The `tokenizers` package merges pairs; texts are then cut by the longest match, as in
`accel.rwkv.tokenizer`. Digits are never merged and no token spans two words, so that numbers are
always spelt and a slot always has the same parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_PIECES = r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]|\s"


def train(texts: Iterable[str], size: int) -> list[bytes]:
    """Return at most `size` tokens, among them every byte; token i + 1 is the i-th."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(alphabet), show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(texts, trainer)
    decode = decoders.ByteLevel()
    longer = [
        decode.decode([token]).encode() for token in sorted(tokenizer.get_vocab()) if len(token) > 1
    ]
    whole = sorted({piece for piece in longer if "\ufffd".encode() not in piece and len(piece) > 1})
    return [bytes([i]) for i in range(256)] + whole


def write(tokens: list[bytes], file: Path) -> None:
    """Write the tokens as `ID LITERAL LENGTH` lines."""
    lines = [f"{i} {token!r} {len(token)}\n" for i, token in enumerate(tokens, 1)]
    file.write_text("".join(lines), encoding="utf-8")
