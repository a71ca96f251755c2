"""Describe where a scan may search, and how old debris must be, from settings and environment."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudeck.assistant.housekeeping.findings import Kind, encoded, within
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import Settings, listed

DAY = 86400.0
_ROOT = Path("/")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the C library keeps POSIX shared memory


@dataclass(frozen=True)
class Cache:
    """Describe a folder in which a program keeps what it compiled."""

    program: str
    folder: Path
    depth: int
    """The depth of its pieces in folders; 0 if the folder is one piece."""

    @property
    def root(self) -> Path:
        """Return the folder below which its pieces lie."""
        return self.folder if self.depth else self.folder.parent


@dataclass(frozen=True)
class Scope:
    """Hold everything that a scan needs to know. Folders are absolute and without links."""

    caches: tuple[Cache, ...] = ()
    jobs: Path | None = None
    """The folder that holds a folder for each job."""
    memory: Path | None = None
    """The folder of shared memory."""
    ran: tuple[Path, ...] = ()
    """Working folders of jobs, in which core dumps are left."""
    folders: tuple[Path, ...] = ()
    """Folders that the user named: searched for core dumps and duplicate models."""
    library: Path | None = None
    """A store of models that is read for comparison and never proposed."""
    state: Path | None = None
    """The state folder, which is excluded from the folders above."""
    model: Path | None = None
    """The assistant's model."""
    days: Mapping[Kind, float] | None = None
    """The least age in days by kind; a kind that is missing is not searched for."""
    active: tuple[Job, ...] = ()
    """Jobs that wait or run."""

    @property
    def roots(self) -> frozenset[str]:
        """Return the folders outside of which nothing is touched, percent-encoded as in
        findings.
        """
        all_of_them = (
            self.jobs,
            self.memory,
            *self.ran,
            *self.folders,
            *(cache.root for cache in self.caches),
        )
        return frozenset(encoded(root) for root in all_of_them if root is not None)

    def age_of(self, kind: Kind) -> float | None:
        """Return the least age of a kind in seconds, or None if it is not searched for."""
        found = (self.days or {}).get(kind)
        return None if found is None else found * DAY


def scope_from(
    settings: Settings, ran: tuple[str, ...] = (), active: tuple[Job, ...] = ()
) -> Scope:
    """Return the scope that the settings and the environment define.

    Args:
        settings: The settings.
        ran: Working folders of jobs.
        active: Jobs that wait or run.
    """
    days: dict[Kind, float | str] = {
        "cache": settings.clean_caches,
        "log": settings.clean_logs,
        "artefacts": settings.clean_artefacts,
        "core": settings.clean_cores,
        "duplicate": settings.clean_duplicates,
        "memory": settings.clean_memory,
        "process": 0.0,
    }
    state = _real(paths.home())
    return Scope(
        caches=_caches(),
        jobs=state / "jobs",
        memory=SHARED_MEMORY,
        ran=tuple(
            sorted(
                folder for folder in {_real(folder) for folder in ran} - {_ROOT} if folder.is_dir()
            )
        ),
        folders=_folders(sorted(listed(settings.clean_folders))),
        library=_real(
            os.environ.get("HF_HUB_CACHE")
            or Path(os.environ.get("HF_HOME") or _cached("huggingface")) / "hub"
        ),
        state=state,
        model=_real(settings.model) if settings.model else None,
        days={kind: value for kind, value in days.items() if not isinstance(value, str)},
        active=active,
    )


def _caches() -> tuple[Cache, ...]:
    env = os.environ
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    extensions = env.get("TORCH_EXTENSIONS_DIR")
    found: tuple[tuple[str, str | Path, int], ...] = (
        (
            "Triton",
            env.get("TRITON_CACHE_DIR") or Path(env.get("TRITON_HOME") or "~") / ".triton/cache",
            1,
        ),
        (
            "torch.compile",
            env.get("TORCHINDUCTOR_CACHE_DIR")
            or Path(tempfile.gettempdir()) / f"torchinductor_{user}",
            1,
        ),
        (
            "PyTorch's C++ extensions",
            extensions or _cached("torch_extensions"),
            1 if extensions else 2,
        ),
        ("the CUDA driver", env.get("CUDA_CACHE_PATH") or "~/.nv/ComputeCache", 0),
    )
    return tuple(Cache(program, _real(folder), depth) for program, folder, depth in found)


def _cached(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / name


def _real(folder: str | Path) -> Path:
    return Path(os.path.realpath(Path(folder).expanduser()))


def _folders(named: Iterable[str]) -> tuple[Path, ...]:
    """Return the named folders without the file system's root and those that lie in another."""
    real = sorted({_real(folder) for folder in named} - {_ROOT})
    return tuple(folder for folder in real if not any(within(folder, other) for other in real))
