"""Run others' own tests with ours in the place of their code, and count how many pass.

    python -m tests.peer_suites FOLDER [--only opinfo,fla] [--processes 4] [--out FILE.csv]

FOLDER holds checkouts, of which nothing is installed and nothing is kept here: `fla` of
fla-org/flash-linear-attention, `transformers` of huggingface/transformers, `openai` of
openai/openai-python and `vllm` of vllm-project/vllm, with the packages of the first three and
pytest-asyncio installed. PyTorch brings its samples of attention, `opinfo`, with it. The last two
ask our endpoint, which serves a tiny model with random weights on the CPU. Each test's outcome goes
to FILE: passed, failed or skipped, what computed it, and the reason. The tests of flash-attention
have a program of their own, `tests.gpu.flash_attention_suite`, because their many cases share a
GPU's memory.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gpudeck.accel.serving import tiny
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.endpoint import serving
from tests.support import state_folder

HERE = Path(__file__).parent
HEAD = ("suite", "test", "outcome", "ran_by", "reason", "seconds")


class Suite(NamedTuple):
    """Describe a suite: the shim, the tests below its checkout, and those that are meant."""

    shim: str
    tests: tuple[str, ...]
    only: str = ""


_OPENAI = ("chat/test_completions.py", "test_completions.py", "test_models.py")
_VLLM = (
    "chat_completion/test_chat.py", "chat_completion/test_chat_completion.py",
    "chat_completion/test_completion_with_function_calling.py", "completion/test_completion.py",
)  # fmt: skip
SUITES = {
    "opinfo": Suite("", (str(HERE / "test_opinfo.py"),)),
    "fla": Suite("fla_shim", ("tests/ops",), "test_chunk and not fused"),
    "transformers": Suite("transformers_shim", ("tests/models",), "eager_matches_sdpa"),
    "openai": Suite("endpoint_shim", tuple(f"tests/api_resources/{name}" for name in _OPENAI)),
    "vllm": Suite("endpoint_shim", tuple(f"tests/entrypoints/openai/{name}" for name in _VLLM)),
}


@contextmanager
def endpoint() -> Iterator[Mapping[str, str]]:
    """Serve a tiny model, and yield what the environment says about it."""
    with tempfile.TemporaryDirectory() as scratch:
        tiny.make(Path(scratch, "tiny"))
        with state_folder(Path(scratch, "home")) as home:
            settings.save(Settings(source="cpu", model_folder=TEMPLATE))
            with serving(home, str(Path(scratch, "tiny")), "--cpu") as served:
                yield {"ENDPOINT": f"http://127.0.0.1:{served.port}", "TOKEN": served.token}


def run(
    name: str, folder: Path, processes: int, out: Path, more: Mapping[str, str] | None = None
) -> None:
    """Run a suite; its tests' outcomes are appended to a file."""
    suite, checkout = SUITES[name], folder / name
    asked = [
        "-c",
        os.devnull,
        "-q",
        "--continue-on-collection-errors",
        "-p",
        "outcomes",
        "-p",
        "no:cacheprovider",
        "-n",
        processes,
    ]
    asked += ["-p", suite.shim] if suite.shim else []
    asked += ["-o", "asyncio_mode=auto"] if suite.shim == "endpoint_shim" else []
    asked += ["-k", suite.only] if suite.only else []
    place = checkout if checkout.is_dir() else folder
    places = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(places), "OUTCOMES": str(out.resolve()), "SUITE": name,
        "HF_HUB_OFFLINE": "1", "RUN_SLOW": "1", "FLA_DISABLE_BACKEND_DISPATCH": "1",
        **(more or {}),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "--rootdir", place, *asked, *suite.tests]
    subprocess.run([*map(str, command)], cwd=place, env={**os.environ, **environment}, check=False)


def main() -> None:
    """Run the suites, and print how many tests of each ended how."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(SUITES))
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("peer_suites.csv"))
    asked = parser.parse_args()
    with asked.out.open("w", newline="") as file:
        csv.writer(file).writerow(HEAD)
    for name in asked.only.split(","):
        given = name, asked.folder.resolve(), asked.processes, asked.out
        if SUITES[name].shim == "endpoint_shim":
            with endpoint() as served:
                run(*given, served)
        else:
            run(*given)
    with asked.out.open(newline="") as file:
        counts = Counter((row["suite"], row["outcome"]) for row in csv.DictReader(file))
    for (name, outcome), n in sorted(counts.items()):
        print(f"{name}: {n} {outcome}")


if __name__ == "__main__":
    main()
