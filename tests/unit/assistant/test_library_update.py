"""A model that is fetched again is wholly the older or wholly the newer revision."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.weights import read as weight_files
from gpudeck.assistant.library import hub as hubs
from gpudeck.assistant.library import staging
from gpudeck.assistant.library.describe import describe
from gpudeck.assistant.library.hub import FetchProgress
from gpudeck.assistant.library.pull import Pull
from gpudeck.scheduler.protocol.errors import UserError
from tests.integration.torture.faults import small_disk
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf
from tests.unit.assistant.hub_server import Hub, serving

SHARDS = [f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)]
INDEX = "model.safetensors.index.json"


class Cut(Exception):
    """End the process here."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))


def revision(folder: Path, seed: int, shards: int = 3) -> dict[str, bytes]:
    write_hf(
        folder, to_hf(random_model(layers=2, channels=64, vocabulary=64, seed=seed)), shards=shards
    )
    shutil.copy(vocabulary_file(), folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def older(tmp_path: Path) -> dict[str, bytes]:
    return revision(tmp_path / "older", seed=1)


@pytest.fixture
def newer(tmp_path: Path) -> dict[str, bytes]:
    return revision(tmp_path / "newer", seed=2)


@pytest.fixture
def hub(newer: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(dict(newer)) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setattr(constants, "ENDPOINT", made.url)  # for a fetch in this process
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            made.url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield made


@pytest.fixture
def folder(older: dict[str, bytes]) -> Path:
    """Return the model as fetched before, with the files that its user added."""
    made = Pull("ada/tiny").folder
    (made / "runs" / "a").mkdir(parents=True)
    for name, data in {**older, "notes.txt": b"mine", "runs/a/loss": b"1.5"}.items():
        (made / name).write_bytes(data)
    return made


def fetch(folder: Path, cut: Callable[[FetchProgress], bool] = lambda told: False) -> None:
    """Fetch in this process; `cut` sets where it ends."""

    def say(told: FetchProgress) -> None:
        if cut(told):
            raise Cut

    hubs.fetch("ada/tiny", folder, say)


def holds(folder: Path) -> dict[str, bytes]:
    """Return all files except those that the user added, which must always be there."""
    found = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert (found.pop("notes.txt"), found.pop("runs/a/loss")) == (b"mine", b"1.5")
    return found


def beside(folder: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in folder.parent.iterdir()
        if entry.name not in (folder.name, f".{folder.name}.lock")
    )


@pytest.mark.parametrize("place", SHARDS)
def test_an_interrupted_update_keeps_the_older_revision_and_continues(
    hub, folder, older, newer, place
):
    with pytest.raises(Cut):
        fetch(folder, lambda told: (place, 0) in hub.asked)
    assert holds(folder) == older
    assert describe(folder).problem == ""
    whole = {name for name, _ in hub.asked} - {place}
    fetch(folder)
    assert holds(folder) == newer
    assert all([name for name, _ in hub.asked].count(name) == 1 for name in whole), (
        "what was there was not fetched again"
    )
    assert {name for name, _ in hub.asked} == set(SHARDS), "nor what both revisions have"
    assert beside(folder) == []


def test_a_revision_with_fewer_files_leaves_none_of_the_older_ones(hub, folder, tmp_path):
    hub.files = {"modeling_rwkv7.py": b"", **revision(tmp_path / "whole", seed=3, shards=1)}
    fetch(folder)
    assert holds(folder) == {
        name: data for name, data in hub.files.items() if name != "modeling_rwkv7.py"
    }
    asked, inode = len(hub.asked), folder.stat().st_ino
    fetch(folder)
    assert (len(hub.asked), folder.stat().st_ino) == (asked, inode), "there was nothing to do"
    (folder / INDEX).write_bytes(b"{}")
    fetch(folder)
    assert INDEX not in holds(folder), "of an older revision, fetched by who did not know better"


def test_a_third_revision_replaces_a_half_fetched_second(hub, folder, newer, tmp_path):
    """Files common to both are not fetched twice; nothing else of the second revision is left."""
    with pytest.raises(Cut):
        fetch(folder, lambda told: (SHARDS[2], 0) in hub.asked)
    third = revision(tmp_path / "third", seed=4)
    first = hub.asked[0][0]
    hub.files = {**third, first: newer[first]}
    fetch(folder)
    assert holds(folder) == hub.files
    assert [name for name, _ in hub.asked].count(first) == 1


@pytest.mark.parametrize("what", ["index", "cut", "kind"])
def test_a_revision_that_cannot_be_used_does_not_replace_one_that_can(
    hub, folder, older, newer, what
):
    hub.files = {
        "index": {name: data for name, data in newer.items() if name != SHARDS[1]},
        "cut": {**newer, SHARDS[1]: newer[SHARDS[1]][:-9]},
        "kind": {**older, "config.json": json.dumps({"model_type": "mamba"}).encode()},
    }[what]
    with pytest.raises(
        UserError,
        match={
            "index": "the hub does not list",
            "cut": "truncated.*Your current revision stays",
            "kind": "'mamba'",
        }[what],
    ):
        fetch(folder)
    assert holds(folder) == older
    hub.files = newer
    fetch(folder)
    assert holds(folder) == newer


def test_a_disk_that_fills_up_costs_nothing(hub, older, newer, tmp_path, monkeypatch):
    monkeypatch.setattr(hubs, "_SPARE", 0)
    try:
        with small_disk(tmp_path / "disk", "4m") as disk:
            folder = disk / "models" / "tiny"
            folder.mkdir(parents=True)
            disk.chmod(0o700), folder.parent.chmod(0o700)
            for name, data in older.items():
                (folder / name).write_bytes(data)

            def fill(told: FetchProgress) -> bool:
                if hub.asked and not (disk / "ballast").exists():
                    with (disk / "ballast").open("wb", buffering=0) as f:
                        while f.write(b"x" * 4096) == 4096 and shutil.disk_usage(disk).free:
                            pass
                return False

            with pytest.raises(
                UserError, match=r"No space left on device\. What was fetched is kept"
            ):
                fetch(folder, fill)
            assert {file.name: file.read_bytes() for file in folder.iterdir()} == older
            with pytest.raises(UserError, match="must be fetched"):
                fetch(folder)
            (disk / "ballast").unlink()
            fetch(folder)
            assert {file.name: file.read_bytes() for file in folder.iterdir()} == newer
    except PermissionError as e:
        pytest.skip(str(e))


def test_there_is_a_whole_model_at_every_moment(tmp_path):
    """The folder is exchanged many times; a reader always finds one whole revision."""
    folder, found, done = tmp_path / "tiny", set[str](), threading.Event()
    folder.mkdir()
    (folder / "which").write_text("0")

    def look() -> None:
        while not done.is_set():
            found.add((folder / "which").read_text())

    looker = threading.Thread(target=look)
    looker.start()
    for number in range(1, 100):
        (staging.begin(folder, ()) / "which").write_text(str(number))
        staging.replace(folder)
    done.set()
    looker.join()
    assert (folder / "which").read_text() == "99"
    assert len(found) > 1
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("able", [True, False], ids=["exchange", "two renames"])
def test_an_interrupted_exchange_of_folders_is_repaired(
    hub, folder, older, newer, monkeypatch, able
):
    """NFS cannot exchange two names: for a moment there is no folder, and the next fetch restores
    it.
    """

    def unable(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def cut(path: Path, to: Path, rename: Callable[[Path, Path], Path] = Path.rename) -> Path:
        if path == staging.beside(folder):
            raise Cut
        return rename(path, to)

    with monkeypatch.context() as patch:
        if not able:
            patch.setattr(staging, "exchange", unable)
        patch.setattr(Path, "rename", cut)
        with pytest.raises(Cut):
            fetch(folder)
    assert folder.exists() == able
    if able:
        assert holds(folder) == newer
    with pytest.raises(Cut):
        fetch(folder, lambda told: True)
    assert holds(folder) == (newer if able else older)
    fetch(folder)
    assert holds(folder) == newer
    assert beside(folder) == []


def test_a_model_replaced_while_loading_is_loaded_again(folder, newer, monkeypatch):
    loaded = []

    def read(
        file: Path, load: Callable[[Path], dict[str, torch.Tensor]] = weight_files.read_safetensors
    ) -> dict[str, torch.Tensor]:
        if len(loaded) == 1:
            for name, data in newer.items():
                (staging.begin(folder, newer) / name).write_bytes(data)
            staging.replace(folder)
        loaded.append(file.name)
        return load(file)

    monkeypatch.setattr(weight_files, "read_safetensors", read)
    found = weight_files.read(folder)
    monkeypatch.undo()
    wanted = to_hf(random_model(layers=2, channels=64, vocabulary=64, seed=2))
    assert loaded == SHARDS * 2
    assert found.keys() == wanted.keys() and all(
        torch.equal(found[name], wanted[name]) for name in wanted
    )


@pytest.mark.slow
def test_a_repeatedly_killed_update_keeps_the_older_revision_until_it_completes(
    hub, folder, older, newer
):
    for place in sorted(newer, key=lambda name: (len(newer[name]), name)):
        if newer[place] == older.get(place):
            continue
        hub.stalls = {place: len(newer[place]) // 2}
        pull = Pull("ada/tiny")
        assert (
            pull.run(
                lambda told, p=place, pull=pull: (
                    pull.cancel() if told.file == p and not told.checking else None
                )
            )
            is None
        )
        assert holds(folder) == older
        assert RWKV7.load(folder).parameters
    hub.stalls = {}
    assert Pull("ada/tiny").run(lambda told: None) is not None
    assert holds(folder) == newer
    assert len([name for name, start in hub.asked if name == SHARDS[0] and not start]) <= 2
