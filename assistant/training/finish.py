"""Write what belongs to a trained reader: its classes, the examples that vote, the manual.

    python -m gpudeck.assistant.training.finish FOLDER DATA --held-out 3 9 12

FOLDER has the encoder (`cut`) and the trained `reader.safetensors` (`reader`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.reader.encoder import Encoder  # noqa: E402
from gpudeck.assistant.reader.neighbours import FILE, save  # noqa: E402
from gpudeck.assistant.reader.reading import CLASSES, Classes, opening, whole_of  # noqa: E402
from gpudeck.assistant.retrieval.sections import vectors_of  # noqa: E402
from gpudeck.assistant.training.reader_network import HEADS, MARKS  # noqa: E402
from gpudeck.assistant.training.requests import examples  # noqa: E402


def main() -> None:
    """Write the classes, the neighbours and the vectors of the manual's sections."""
    parser = argparse.ArgumentParser(description="Write what belongs to a trained reader.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--held-out", nargs="*", type=int, default=[])
    args = parser.parse_args()
    encoder = Encoder.load(args.folder)
    (args.folder / CLASSES).write_bytes(msgspec.json.encode(Classes(HEADS, MARKS)))
    kept = [one for one in examples(args.data) if one.profile not in args.held_out]
    states = (encoder.encode(opening(one.before) + one.text, trained=True).states for one in kept)
    save(args.folder / FILE, np.stack([*map(whole_of, states)]),
         np.array([HEADS.index(one.heads[0]) for one in kept]))  # fmt: skip
    vectors = vectors_of(encoder.vector)
    np.savez(args.folder / "sections.npz", keys=np.array(list(vectors)),
             vectors=np.array(list(vectors.values()), np.float16))  # fmt: skip


if __name__ == "__main__":
    main()
