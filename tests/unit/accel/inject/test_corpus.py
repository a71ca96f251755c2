"""Attention in published packages is linked right or left alone for the right reason.

The packages are downloaded once into a cache, and nothing of them is installed or kept in the
repository. Each rewrite is judged by running it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpudeck.accel.inject import prove
from gpudeck.accel.inject.scan import scan

pytestmark = pytest.mark.slow
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "gpudeck-corpus"
PACKAGES = {
    "esm": "fair-esm==2.0.0",
    "segment_anything": "segment-anything==1.0",
    "timm": "timm==1.0.31",
    "vit_pytorch": "vit-pytorch==1.26.11",
    "whisper": "openai-whisper==20250625",
    "x_transformers": "x-transformers==2.31.10",
}
FILES = {
    ("vit_pytorch", "vit.py"): {"link"},
    ("vit_pytorch", "cait.py"): {"leave"},  # heads talk before and after the softmax
    ("vit_pytorch", "deepvit.py"): {"leave"},  # weights are mixed after the softmax
    ("segment_anything", "modeling/image_encoder.py"): {"link"},
    ("segment_anything", "modeling/transformer.py"): {"link"},
    ("whisper", "model.py"): {"link", "leave"},  # one branch returns its scores
    ("esm", "multihead_attention.py"): {"leave"},  # weights are returned
    ("x_transformers", "attend.py"): {"link", "leave"},  # top-k, Gumbel and others
    ("timm", "models/swin_transformer.py"): {"link"},
    ("timm", "models/levit.py"): {"link"},
    ("timm", "layers/attention.py"): {"link"},
}
NOT_RUN = {("timm", "models/levit.py")}
"""No inputs are guessed with which these run."""


@pytest.fixture(scope="session")
def corpus():
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # the processes that run tests share the cache
        fcntl.flock(lock, fcntl.LOCK_EX)
        _download()
    return CACHE


def _download() -> None:
    """Bring those packages into the cache that it lacks."""
    for package, requirement in PACKAGES.items():
        if (CACHE / package).is_dir():
            continue
        wheels = CACHE / "wheels" / package
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, requirement],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"{requirement} cannot be downloaded: {done.stderr.strip()[-200:]}")
        _unpack(next(wheels.iterdir()), package)


def _unpack(archive: Path, package: str) -> None:
    target = CACHE / package
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(CACHE, [n for n in wheel.namelist() if n.startswith(f"{package}/")])
        return
    with tarfile.open(archive) as source:
        root = source.getnames()[0].partition("/")[0]
        source.extractall(CACHE / "sources", filter="data")
    (CACHE / "sources" / root / package).rename(target)


@pytest.mark.parametrize("place", FILES, ids="/".join)
def test_published_attention_is_linked_right_or_left_alone(corpus, place):
    path = corpus.joinpath(*place)
    found = scan([path])
    assert {f.action for f in found} == FILES[place]
    proofs = prove.prove(path)
    assert [p for p in proofs if p.outcome == "wrong"] == []
    if FILES[place] == {"link"} and place not in NOT_RUN:
        assert any(p.proved for p in proofs), [p.verdict for p in proofs]
