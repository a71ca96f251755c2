"""Write what belongs to a trained reader: its classes, and what the manual is searched by.

    python -m gpudeck.assistant.training.finish FOLDER

FOLDER has the encoder (`cut`) and the trained `reader.safetensors` (`reader`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import numpy as np

from gpudeck.assistant import one_thread

one_thread.import_numpy()

from gpudeck.assistant.reader.reading import CLASSES, Classes, Reader  # noqa: E402
from gpudeck.assistant.retrieval.ranking import SECTIONS, vectors_of  # noqa: E402
from gpudeck.assistant.training.reader_network import HEADS, MARKS  # noqa: E402
from gpudeck.assistant.training.sections import learnt_head  # noqa: E402


def main() -> None:
    """Write the classes, and the vectors of sections with the head that knows questions."""
    parser = argparse.ArgumentParser(description="Write what belongs to a trained reader.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    (folder / CLASSES).write_bytes(msgspec.json.encode(Classes(HEADS, MARKS)))
    reader = Reader.load(folder)
    vectors = vectors_of(reader.encoder.vector)
    places, weights, bias = learnt_head(reader)
    np.savez(folder / SECTIONS, keys=np.array(list(vectors)),
             vectors=np.array(list(vectors.values()), np.float16),
             places=places, weights=weights, bias=bias)  # fmt: skip


if __name__ == "__main__":
    main()
