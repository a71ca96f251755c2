"""Build the sdist and the wheel of the last commit into dist/, and check them: `make dist`.

They are built in a clean copy, so nothing gets into them that lies about in the clone. The wheel is
made from the sdist, as an installer without a fitting wheel does, and compared with one that is
made from the clone, as `pip install git+https://…` does.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

from gpudeck.version import VERSION

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = (
    "assistant/training/*",
    "assets/*/README.md",
    "docs/architecture.md",
    "docs/decisions.md",
    "docs/gpudeck.1",  # which is installed where man(1) finds it
    "docs/pictures/*",
    "docs/release.md",
    "docs/transcript.md",
)
"""What is needed neither to run the program nor to answer questions about it."""
LIMIT = 48_000_000
"""Bytes that neither file may reach; the weights of the two readers are 37 million of them."""


def installed_files() -> set[str]:
    """Return the files of this clone that an installation needs, by their paths in the clone."""
    folders = ("gpudeck", "app", "accel", "assistant", "scheduler", "language", "assets", "docs")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {
        file
        for file in files.split("\0")
        if file and not any(fnmatch(file, pattern) for pattern in NOT_INSTALLED)
    }


def installed_name(file: str) -> str:
    """Return where a file of the clone is in site-packages."""
    return file if file.startswith("gpudeck/") else f"gpudeck/{file}"


def export(folder: Path) -> Path:
    """Write the files of the last commit into a folder."""
    command = ["git", "archive", "--format=tar", "HEAD"]
    packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def build(source: Path, into: Path, *options: str) -> None:
    """Build what the options name; without one, the sdist, and the wheel from it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", into, *options, source]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def hashes(wheel: Path) -> dict[str, str]:
    """Return the files of a wheel with the hashes of their contents."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def differences(what: str, found: set[str], wanted: set[str]) -> list[str]:
    """Return a line for each file that is missing, or should not be there."""
    return [f"{what} lacks {name}" for name in sorted(wanted - found)] + [
        f"{what} has {name}, which does not belong there" for name in sorted(found - wanted)
    ]


def wheel_problems(wheel: Path, direct: Path) -> list[str]:
    """Compare a wheel with the files of the clone, and with the wheel that was made from it."""
    info = f"gpudeck-{VERSION}.dist-info"
    names = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    wanted = {installed_name(file) for file in installed_files()}
    wanted |= {f"{info}/{name}" for name in names}
    wanted.add(f"gpudeck-{VERSION}.data/data/share/man/man1/gpudeck.1")
    found, other = hashes(wheel), hashes(direct)
    unlike = sorted(name for name in found.keys() & other.keys() if found[name] != other[name])
    return [
        *differences("the wheel", {*found}, wanted),
        *differences("the wheel from the sdist, beside that from the clone,", {*found}, {*other}),
        *(f"{name} differs between the wheels of the sdist and of the clone" for name in unlike),
    ]


def sdist_problems(sdist: Path) -> list[str]:
    """Compare an sdist with the files of the clone that an installation needs."""
    top = f"gpudeck-{VERSION}/"
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(top) for member in archive if member.isfile()}
    made = {name for name in names if name.startswith("gpudeck.egg-info/")}
    wanted = installed_files() | {"docs/gpudeck.1", "pyproject.toml", "setup.py", "README.md"}
    return differences("the sdist", names - made, wanted | {"LICENSE", "PKG-INFO", "setup.cfg"})


def main() -> int:
    """Build and check; the exit status is 1 if something is wrong."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        build(export(Path(folder) / "sdist"), dist)
        build(export(Path(folder) / "clone"), Path(folder) / "direct", "--wheel")
        (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
        (direct,) = (Path(folder) / "direct").glob("*.whl")
        subprocess.run(
            [sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], check=True
        )
        problems = [*wheel_problems(wheel, direct), *sdist_problems(sdist)]
    for file in (sdist, wheel):
        size = file.stat().st_size
        print(f"{file.relative_to(ROOT)}: {size:,} bytes of at most {LIMIT:,}")
        if size >= LIMIT:
            problems.append(f"{file.name} has {size:,} bytes; the limit is {LIMIT:,}")
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
