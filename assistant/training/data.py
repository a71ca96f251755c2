"""Make the samples that a model learns from once, and store them as tokens.

python -m assistant.training.data FOLDER --samples 400000 --workers 16

A vocabulary in the folder is kept, so that the package that makes one is needed only once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.rwkv.tokenizer import END, VOCABULARY, Tokenizer
from assistant.training import vocabulary
from assistant.training.corpus import Sample, held_out, stream

DATA = "data.npz"
HELD_OUT = "held_out.npz"
_PIECE = 2000
"""Samples that a worker makes at once."""
_TEXTS = 12_000
"""Samples from which the vocabulary is made."""
_WIDTH = 16
"""Samples whose lengths differ by less are trained together, so that batches have
little padding.
"""


class Batch(NamedTuple):
    """Hold samples of about one length."""

    tokens: npt.NDArray[np.int64]
    """[B, T], padded with the end."""
    at: npt.NDArray[np.int64]
    """[N] places in the flattened [B, T] whose next token is part of an answer."""
    wanted: npt.NDArray[np.int64]
    """[N] these next tokens."""


class Pool:
    """Hold tokenised samples. `begins[i]` tokens of sample i are its prompt, the rest
    its answer.
    """

    def __init__(
        self,
        tokens: npt.NDArray[np.uint16],
        lengths: npt.NDArray[np.int64],
        begins: npt.NDArray[np.int64],
    ) -> None:
        self.tokens, self.lengths, self.begins = tokens, lengths, begins
        self._offsets = np.concatenate(([0], np.cumsum(lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of(cls, tokenizer: Tokenizer, samples: Iterable[Sample], longest: int) -> Pool:
        """Tokenise samples, and leave out those longer than `longest` tokens."""
        rows = [row for sample in samples if len((row := encoded(tokenizer, sample))[0]) <= longest]
        tokens = np.fromiter(chain.from_iterable(ids for ids, _ in rows), np.uint16)
        return cls(
            tokens,
            np.array([len(ids) for ids, _ in rows], np.int64),
            np.array([begin for _, begin in rows], np.int64),
        )

    @classmethod
    def join(cls, pools: Iterable[Pool]) -> Pool:
        """Join pools of samples into one."""
        parts = zip(*((p.tokens, p.lengths, p.begins) for p in pools), strict=True)
        return cls(*(np.concatenate(part) for part in parts))

    @classmethod
    def load(cls, file: Path) -> Pool:
        """Return the samples stored in a file."""
        with np.load(file, allow_pickle=False) as stored:
            return cls(
                stored["tokens"],
                stored["lengths"].astype(np.int64),
                stored["begins"].astype(np.int64),
            )

    def save(self, file: Path) -> None:
        """Store the samples in a file."""
        np.savez_compressed(
            file,
            tokens=self.tokens,
            lengths=self.lengths.astype(np.uint16),
            begins=self.begins.astype(np.uint16),
        )

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Return the samples of these numbers."""
        lengths, begins = self.lengths[rows, None], self.begins[rows, None]
        place = np.arange(int(lengths.max()))
        inside = place < lengths
        tokens = np.where(
            inside,
            self.tokens[np.minimum(self._offsets[rows, None] + place, len(self.tokens) - 1)],
            END,
        ).astype(np.int64)
        answers = (place >= begins) & inside
        at = np.flatnonzero(answers) - 1
        return Batch(tokens, at, tokens[answers])

    def batches(self, random: np.random.Generator, rows: int, tokens: int) -> Iterator[Batch]:
        """Yield batches without end, with every sample once an epoch.

        A batch has `rows` samples of about one length, or fewer if they exceed `tokens` with
        padding.
        """
        while True:
            order = random.permutation(len(self))
            widths = -(-self.lengths[order] // _WIDTH) * _WIDTH
            parts = [
                part
                for width in np.unique(widths)
                for part in _cut(order[widths == width], max(1, min(rows, tokens // int(width))))
            ]  # fmt: skip
            for i in random.permutation(len(parts)):
                yield self.batch(parts[i])


def _cut(rows: npt.NDArray[np.int64], size: int) -> list[npt.NDArray[np.int64]]:
    return np.split(rows, range(size, len(rows), size))


def encoded(tokenizer: Tokenizer, sample: Sample) -> tuple[list[int], int]:
    """Return the tokens of a sample with the end, and the beginning of its answer."""
    prompt = tokenizer.encode(sample.prompt)
    return [*prompt, *tokenizer.encode(sample.answer), END], len(prompt)


def prepare(
    folder: Path,
    samples: int,
    judged: int,
    tokens: int,
    briefs: float,
    longest: int,
    workers: int,
    seed: int = 1,
) -> Pool:
    """Write the vocabulary, data.npz and held_out.npz into the folder, and return the data.

    Args:
        folder: The folder.
        samples: The number of samples.
        judged: The number of held-out requests.
        tokens: The most tokens of the vocabulary.
        briefs: The share of texts.
        longest: The most tokens of a sample.
        workers: The number of processes.
        seed: The seed of all randomness.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / VOCABULARY).is_file():
        texts = (
            sample.prompt + sample.answer
            for sample in islice(stream(seed, briefs), min(_TEXTS, samples))
        )
        vocabulary.write(vocabulary.train(texts, tokens), folder / VOCABULARY)
    Pool.of(Tokenizer.load(folder), islice(held_out(seed), judged), longest).save(folder / HELD_OUT)
    work = [
        (seed + 1 + i, min(_PIECE, samples - start))
        for i, start in enumerate(range(0, samples, _PIECE))
    ]
    data = Pool.join(_worked(partial(_piece, folder, briefs, longest), work, workers))
    data.save(folder / DATA)
    return data


def _worked(
    piece: Callable[[tuple[int, int]], Pool], work: list[tuple[int, int]], workers: int
) -> Iterator[Pool]:
    if workers == 1:
        yield from map(piece, work)
    else:
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            yield from pool.imap_unordered(piece, work)


def _piece(folder: Path, briefs: float, longest: int, work: tuple[int, int]) -> Pool:
    seed, size = work
    return Pool.of(Tokenizer.load(folder), islice(stream(seed, briefs), size), longest)


def main() -> None:
    """Make the samples, and print how many they are."""
    parser = argparse.ArgumentParser(description="Make the samples that a model learns from.")
    parser.add_argument("folder", type=Path)
    for name, default in {
        "samples": 400_000,
        "judged": 3000,
        "tokens": 4096,
        "briefs": 0.3,
        "longest": 768,
        "workers": 2,
    }.items():
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"default {default}"
        )
    given = vars(parser.parse_args())
    began = time.monotonic()
    pool = prepare(**given)
    seconds = time.monotonic() - began
    print(
        f"{len(pool)} samples of {len(pool.tokens)} tokens in {seconds:.0f} s: "
        f"{len(pool) / seconds:.0f} samples/s"
    )
    print(
        f"{(given['folder'] / DATA).stat().st_size / 2**20:.1f} MiB; the longest sample has "
        f"{pool.lengths.max()} tokens"
    )


if __name__ == "__main__":
    main()
