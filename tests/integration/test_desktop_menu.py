"""`gpudeck desktop`: the entry in the menu, in a data folder of its own, checked by the tools of
freedesktop.org where this machine has them.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from gpudeck.app import DESKTOP_ID
from gpudeck.app.language.texts import LANGUAGES
from gpudeck.scheduler.protocol import paths
from tests.support import LACKS, eventually

TRANSLATED = [language for language in LANGUAGES if language != "en"]
SCRIPT = f"""#!{sys.executable}
import pathlib, sys
from gpudeck.app.cli.main import main
if not sys.argv[1:]:  # as the menu starts it
    sys.exit(pathlib.Path({{opened!r}}).touch())
sys.exit(main())
"""
LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def needs(*commands: str) -> pytest.MarkDecorator:
    missing = ", ".join(command for command in commands if not shutil.which(command))
    return pytest.mark.skipif(bool(missing), reason=f"{LACKS} {missing}")


Gpudeck = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data folder, which another program has used."""
    folder = tmp_path / "share"
    (folder / "applications").mkdir(parents=True)
    (folder / "applications" / "other.desktop").write_text("[Desktop Entry]\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    return folder


@pytest.fixture
def gpudeck(tmp_path: Path) -> Gpudeck:
    """Return a function that runs `gpudeck`, installed where names are hard to quote."""
    script = tmp_path / 'a "b" $HOME `c` \\d; é' / "gpudeck"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(opened=str(tmp_path / "opened")))
    script.chmod(0o755)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [script, *words], capture_output=True, text=True, check=True, timeout=60
        )

    return run


def files(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_it_is_installed_once_and_removed_without_a_trace(data: Path, gpudeck: Gpudeck) -> None:
    before = files(data)
    said = gpudeck("desktop", "install").stdout
    installed = files(data)
    new = installed.keys() - before.keys()
    assert len(new) == 3
    assert all(str(file) in said for file in new)
    again = msgspec.json.decode(gpudeck("desktop", "install", "--json").stdout)
    assert again["files"] == [] and again["program"]
    assert files(data) == installed
    entry = data / "applications" / f"{DESKTOP_ID}.desktop"
    entry.write_text(entry.read_text().replace("Exec=", "Exec=/moved"))
    assert str(entry) in gpudeck("desktop", "install").stdout, "the program has moved"
    assert files(data) == installed
    said = gpudeck("desktop", "remove").stdout
    assert all(str(file) in said for file in new)
    assert files(data) == before
    assert "nothing was removed" in gpudeck("desktop", "remove").stdout


@needs("gio")
def test_the_menu_starts_the_program_wherever_it_is(
    data: Path, gpudeck: Gpudeck, tmp_path: Path
) -> None:
    gpudeck("desktop", "install")
    entry = data / "applications" / f"{DESKTOP_ID}.desktop"
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run(["gio", "launch", entry], check=True, timeout=60, env=bare, cwd="/")
    eventually((tmp_path / "opened").exists)


@needs("gtk-update-icon-cache", "update-desktop-database")
def test_caches_that_are_there_are_renewed(data: Path, gpudeck: Gpudeck) -> None:
    icons = data / "icons" / "hicolor"
    (icons / "scalable" / "apps").mkdir(parents=True)
    (icons / "scalable" / "apps" / "other.svg").touch()
    renew = ["gtk-update-icon-cache", "--quiet", "--force", "--ignore-theme-index", icons]
    subprocess.run(renew, check=True, timeout=60)
    cache = icons / "icon-theme.cache"
    for action, known in (("install", True), ("remove", False)):
        gpudeck("desktop", action)
        assert (DESKTOP_ID.encode() in cache.read_bytes()) is known
        assert cache.stat().st_mtime_ns >= icons.stat().st_mtime_ns, "an older one is not used"
    assert b"other" in cache.read_bytes()
    assert not (data / "applications" / "mimeinfo.cache").exists()


def test_a_folder_that_cannot_be_written_is_named_in_one_line() -> None:
    command = [sys.executable, "-m", "gpudeck", "desktop", "install"]
    environment = {**os.environ, "XDG_DATA_HOME": "/proc/no"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=environment
    )
    assert done.returncode == 1
    assert "/proc/no" in done.stderr and done.stderr.count("\n") == 1


@needs("desktop-file-validate")
def test_the_entry_is_valid(data: Path, gpudeck: Gpudeck) -> None:
    gpudeck("desktop", "install")
    name = f"{DESKTOP_ID}.desktop"
    for file in (paths.assets() / "desktop" / name, data / "applications" / name):
        done = subprocess.run(
            ["desktop-file-validate", file], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs("appstreamcli")
def test_the_description_for_software_centres_is_valid() -> None:
    file = paths.assets() / "desktop" / f"{DESKTOP_ID}.metainfo.xml"
    command = ["appstreamcli", "validate", "--no-net", "--no-color", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_menu_shows_is_in_every_language() -> None:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(paths.assets() / "desktop" / f"{DESKTOP_ID}.desktop", encoding="utf-8")
    entry = parser["Desktop Entry"]
    for key in ("GenericName", "Comment", "Keywords"):
        assert all(entry[f"{key}[{language}]"] for language in TRANSLATED)
    xml = ElementTree.parse(paths.assets() / "desktop" / f"{DESKTOP_ID}.metainfo.xml")
    assert xml.findtext("launchable") == f"{DESKTOP_ID}.desktop"
    for tag in ("summary", "p", "caption"):
        found = [element.get(LANG, "en") for element in xml.iter(tag)]
        assert {*found} == {*LANGUAGES}
        assert len({found.count(language) for language in LANGUAGES}) == 1, f"<{tag}> in each"
