"""Describe where a scan may search, and how old debris must be, by the settings and the environment."""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assistant.housekeeping.findings import Kind, encoded, within
from scheduler.protocol import paths
from scheduler.protocol.jobs import Job
from scheduler.protocol.settings import Settings, listed

DAY = 86400.0
_ROOT = Path("/")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where the C library keeps POSIX shared memory


@dataclass(frozen=True)
class Cache:
    """A folder in which a program keeps what it compiled."""

    program: str
    folder: Path
    depth: int
    """Its pieces are so many folders down; 0: it is one piece."""

    @property
    def root(self) -> Path:
        return self.folder if self.depth else self.folder.parent


@dataclass(frozen=True)
class Scope:
    """All that a scan needs to know. Folders are absolute, and without links."""

    caches: tuple[Cache, ...] = ()
    jobs: Path | None = None
    """The folder with a folder for each job."""
    memory: Path | None = None
    """Where shared memory lies."""
    ran: tuple[Path, ...] = ()
    """Working folders of jobs, in which core dumps are left."""
    folders: tuple[Path, ...] = ()
    """Those the user named: looked through for core dumps and duplicate models."""
    library: Path | None = None
    """A store of models whose files are looked at, and never proposed."""
    state: Path | None = None
    """The state folder: none of the folders above is looked through there."""
    model: Path | None = None
    """The assistant's model."""
    days: Mapping[Kind, float] | None = None
    """From what age on; a kind that is left out is not looked for."""
    active: tuple[Job, ...] = ()
    """Jobs that wait or run."""

    @property
    def roots(self) -> frozenset[str]:
        """What is not below one of these is never touched; percent-encoded, as finds name theirs."""
        all_of_them = (
            self.jobs,
            self.memory,
            *self.ran,
            *self.folders,
            *(cache.root for cache in self.caches),
        )
        return frozenset(encoded(root) for root in all_of_them if root is not None)

    def age_of(self, kind: Kind) -> float | None:
        """Seconds; None where it is not to be looked for."""
        found = (self.days or {}).get(kind)
        return None if found is None else found * DAY


def scope_from(
    settings: Settings, ran: tuple[str, ...] = (), active: tuple[Job, ...] = ()
) -> Scope:
    """As the settings and the environment say. `ran`: working folders of jobs."""
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
    """Without those that lie in another, and without the root of everything."""
    real = sorted({_real(folder) for folder in named} - {_ROOT})
    return tuple(folder for folder in real if not any(within(folder, other) for other in real))
