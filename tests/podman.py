"""Provide a real Podman with an image of its own, without a network."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

IMAGE = "localhost/gpudeck-test:busybox"
_APPLETS = ("sh", "sleep", "cat", "id", "env", "pwd", "echo", "test", "ls")
_LIMITS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]\n'
"""For machines that may not raise limits, as Podman otherwise does."""


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Set the environment for a Podman that keeps everything in `folder`, and import the image.

    Skips the test where no container can be started on this machine.
    """
    busybox = shutil.which("busybox")
    if shutil.which("podman") is None or busybox is None:
        pytest.skip("podman or busybox-static is not installed")
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    podman("import", str(_archive(folder, busybox)), IMAGE)
    problem = ""
    for engine in ("", '[engine]\nruntime = "runc"\n'):
        config = folder / "containers.conf"
        config.write_text(_LIMITS + engine)
        patch.setenv("CONTAINERS_CONF", str(config))
        tried = podman("run", "--rm", "--network", "host", IMAGE, "/bin/echo", "works", check=False)
        if tried.stdout == "works\n":
            return
        problem = tried.stderr.strip()
    pytest.skip(f"no container can be started here: {problem}")


def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=check)


def _archive(folder: Path, busybox: str) -> Path:
    """Return a root file system with nothing but busybox."""
    file = folder / "root.tar"
    with tarfile.open(file, "w") as out:
        out.add(busybox, "bin/busybox")
        for name in _APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            out.addfile(link)
        for name, text in (("etc/passwd", f"me:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n"),):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            out.addfile(entry, io.BytesIO(text.encode()))
    return file
