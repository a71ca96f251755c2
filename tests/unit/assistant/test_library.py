"""Models are described without loading, listed, and fetched from a hub."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.serving import tiny as tiny_transformer
from gpudeck.assistant.host.model_residency import gpu_bytes
from gpudeck.assistant.library import hub as hubs
from gpudeck.assistant.library import model_list
from gpudeck.assistant.library.describe import describe
from gpudeck.assistant.library.hub import FetchProgress
from gpudeck.assistant.library.pull import Pull
from gpudeck.assistant.library.staging import beside
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from tests.support import eventually
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf
from tests.unit.assistant.hub_server import Hub, folder_files, serving


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a state folder of the test's own."""
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    folder = write_hf(tmp_path / "tiny", to_hf(random_model(layers=2, channels=64, vocabulary=64)))
    shutil.copy(vocabulary_file(), folder)
    return folder


@pytest.mark.parametrize("kind", ["hf shards", "hf fused", "blinkdl", "pth"])
def test_the_description_of_a_model_equals_the_loaded_model(tmp_path, kind):
    tensors = {name: t.bfloat16() for name, t in random_model().items()}
    path = tmp_path / "model.pth"
    if kind == "pth":
        torch.save(tensors, path)
    else:
        path = tmp_path / "folder"
        write_hf(
            path,
            tensors if kind == "blinkdl" else to_hf(tensors, fused="fused" in kind),
            shards=3 if "shards" in kind else 1,
        )
    assert "no vocabulary at" in str(describe(path).problem)
    shutil.copy(vocabulary_file(), path if path.is_dir() else path.parent)
    found, loaded = describe(path), RWKV7.load(path)
    assert found.problem == ""
    assert (found.layers, found.dtype) == (3, "BF16")
    assert found.dialect == ("flash-linear-attention" if kind.startswith("hf") else "BlinkDL")
    state = loaded.fresh()
    # A .pth does not list shapes, so the first layer's unused tensors are counted as well.
    if kind == "pth":
        assert loaded.parameters <= found.parameters <= 1.02 * loaded.parameters
    else:
        assert (found.channels, found.vocabulary, found.parameters) == (128, 320, loaded.parameters)
        assert (
            loaded.nbytes + state.shift.nbytes + state.wkv.nbytes
            <= found.needs["cpu"]
            <= 1.01 * (loaded.nbytes + state.wkv.nbytes)
        )
    assert found.needs["cuda"] < found.needs["cpu"]


def test_the_description_says_why_a_model_cannot_be_used(tmp_path, tiny):
    weights = tiny / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert "truncated or damaged" in str(describe(tiny).problem)
    weights.write_bytes((2**60).to_bytes(8, "little") + whole[8:])
    assert "truncated or damaged" in str(describe(tiny).problem)
    weights.write_bytes(whole)
    (tiny / "config.json").write_text(json.dumps({"model_type": "rwkv7", "head_size": 64}))
    assert "dialect" in str(describe(tiny).problem)
    (tiny / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    assert "'mamba'" in str(describe(tiny).problem)
    assert "no model at" in str(describe(tmp_path / "nowhere").problem)
    (tmp_path / "x.pth").write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    assert "not a readable .pth file" in str(describe(tmp_path / "x.pth").problem)


def test_a_gpu_is_leased_for_what_a_model_takes_there_not_for_its_files(tiny):
    """The released models of 1.5 and 2.9 billion parameters are stored in 32 bits."""
    weights = (tiny / "model.safetensors").stat().st_size
    assert weights / 2 < gpu_bytes(str(tiny)) < weights
    assert gpu_bytes(str(tiny / "nothing")) == 0, "loading it says what is wrong"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    tiny_transformer.make(tmp_path / "llama")
    return tmp_path / "llama"


def test_a_served_model_is_described_without_loading_it(llama):
    found = describe(llama)
    assert (found.problem, found.family, found.dtype, found.chats) == (
        "",
        "Llama or SmolLM",
        "F32",
        True,
    )
    assert (found.layers, found.channels, found.vocabulary, found.large) == (2, 64, 512, False)
    stored = (llama / "model.safetensors").stat().st_size
    assert found.needs == {"cpu": stored, "cuda": stored}
    assert found.footprint is not None and found.footprint.context == 1024
    assert (
        found.footprint.block_bytes("cuda") == 16 * 2 * 2 * 2 * 16 * 2
    )  # layers, k and v, heads, size, bytes
    weights = (llama / "model.safetensors").read_bytes()
    (llama / "model.safetensors").write_bytes(weights[:-1])
    assert "truncated or damaged" in str(describe(llama).problem)
    (llama / "model.safetensors").unlink()
    assert "no .safetensors files" in str(describe(llama).problem)
    (llama / "model.Q4_K_M.gguf").write_bytes(b"GGUF")
    assert "in the format GGUF" in str(describe(llama).problem)
    assert "in the format GGUF" in str(describe(llama / "model.Q4_K_M.gguf").problem)


def test_models_are_added_to_and_removed_from_the_list(tiny, state):
    assert model_list.listed_models() == ()
    added = model_list.add(tiny)
    model_list.add(tiny)
    assert model_list.listed_models() == (added,)
    assert model_list.find("tiny") == model_list.find(str(tiny)) == added
    assert [m.name for m in model_list.listed_models("/not/there")] == ["there", "tiny"]
    assert (state / "models.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(NotFound, match="tiny"):
        model_list.find("other")
    with pytest.raises(UserError, match="no model at"):
        model_list.add(state / "nothing")
    model_list.remove(added.path)
    assert model_list.listed_models() == ()
    assert tiny.is_dir(), "only the list forgets it"
    with pytest.raises(NotFound):
        model_list.remove(added.path)
    (state / "models.json").write_text("{")
    with pytest.raises(UserError, match="delete it"):
        model_list.listed_models()


@pytest.fixture
def hub(tiny, monkeypatch):
    with serving(folder_files(tiny)) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        yield made


def pulled(hub: Hub) -> tuple[Pull, list[FetchProgress]]:
    told: list[FetchProgress] = []
    pull = Pull(f"{hub.url}/ada/tiny")
    model = pull.run(told.append)
    assert model is not None
    assert (pull.exit_status, pull.log_file.read_text()) == (0, ""), "it came to a clean end"
    assert (model.path, model.problem) == (str(pull.folder), "")
    return pull, told


def test_a_model_is_fetched_over_a_broken_connection_without_code(hub, tiny):
    hub.breaks["model.safetensors"] = 100_000
    pull, told = pulled(hub)
    assert {f.name: f.read_bytes() for f in pull.folder.iterdir()} == {
        f.name: f.read_bytes() for f in tiny.iterdir()
    }
    assert any(name == "model.safetensors" and 0 < start <= 100_000 for name, start in hub.asked), (
        "it went on where it broke"
    )
    assert {name for name, _ in hub.asked} == {f.name for f in tiny.iterdir()}
    done = [p.done for p in told]
    assert done == sorted(done)
    assert (told[-1].done, told[-1].checking) == (told[-1].total, True)
    assert {f.stat().st_mode & 0o777 for f in pull.folder.iterdir()} == {0o600}
    assert [m.name for m in model_list.listed_models()] == ["ada--tiny"]


def test_a_served_model_is_fetched_with_its_chat_template_and_without_a_second_copy(
    llama, monkeypatch
):
    (llama / "chat_template.jinja").write_text(tiny_transformer.TEMPLATE)
    files = folder_files(llama)
    files["consolidated.safetensors"] = files["model.safetensors"]
    with serving(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pull, _ = pulled(hub)
    assert {f.name for f in pull.folder.iterdir()} == {f.name for f in llama.iterdir()}
    (found,) = model_list.listed_models()
    assert (found.name, found.family, found.chats) == ("ada--tiny", "Llama or SmolLM", True)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.Q4_K_M.gguf": b"GGUF", "config.json": b"{}"}, "is in the format GGUF"),
        (
            {"model.safetensors": b"x" * 99, "config.json": b'{"model_type": "mamba"}'},
            "the family 'mamba', which is not supported",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_before_its_weights_are_fetched(
    files, reason, monkeypatch
):
    with serving(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with pytest.raises(UserError, match=reason):
            Pull("ada/tiny").run(lambda told: None)
        assert not any(name.endswith((".safetensors", ".gguf")) for name, _ in hub.asked)


def test_a_file_of_the_right_size_with_other_bytes_is_fetched_again(hub, tiny):
    """A further trained model or a damaged file differs only in its bytes; the rest is not fetched
    twice.
    """
    folder = Pull("ada/tiny").folder
    shutil.copytree(tiny, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    _, told = pulled(hub)
    assert weights.read_bytes() == (tiny / "model.safetensors").read_bytes()
    assert {name for name, _ in hub.asked} == {"model.safetensors"}
    assert [p.done for p in told] == sorted(p.done for p in told)


def test_a_file_with_a_wrong_checksum_does_not_get_its_name(tmp_path):
    for size, checksum in (
        (3, "0" * 64),
        (3, "0" * 40),
        (4, hashlib.sha1(b"blob 3\0abc").hexdigest()),
    ):
        file = hubs.HubFile("model.safetensors", size, checksum)
        (tmp_path / file.partial).write_bytes(b"abc")
        with pytest.raises(UserError, match=r"model\.safetensors of ada/tiny is damaged"):
            hubs.accept(tmp_path, file, "ada/tiny")
        assert not list(tmp_path.iterdir())
    for checksum in (hashlib.sha256(b"abc").hexdigest(), hashlib.sha1(b"blob 3\0abc").hexdigest()):
        file = hubs.HubFile("model.safetensors", 3, checksum)
        (tmp_path / file.partial).write_bytes(b"abc")
        hubs.accept(tmp_path, file, "ada/tiny")
        assert (tmp_path / "model.safetensors").read_bytes() == b"abc"


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_is_longer_than_listed_is_cut_and_removed(hub, packed):
    hub.floods["model.safetensors"] = gzip.compress(bytes(2**27)) if packed else bytes(2**16)
    hub.packed = packed
    pull = Pull("ada/tiny")
    with pytest.raises(UserError, match=r"sent more of model\.safetensors than the"):
        pull.run(lambda told: None)
    assert hub.flooded < 2**25, "it is not read to its end"
    assert not pull.folder.exists()
    assert [f.name for f in beside(pull.folder).iterdir()] == ["config.json"]
    assert model_list.listed_models() == ()
    hub.floods.clear()
    pulled(hub)


@pytest.mark.parametrize("packed", [False, True])
def test_a_list_without_end_is_not_read(hub, packed):
    spaces = b" " * 2**16
    hub.floods["listing"] = gzip.compress(spaces * 2**10) if packed else spaces
    hub.packed = packed
    with pytest.raises(UserError, match="has no end"):
        Pull("ada/tiny").run(lambda told: None)
    assert hub.flooded < 2**26


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size": -(2**40)}, "with -1099511627776 bytes"),
        ({"size": 2**70}, f"with {2**70} bytes"),
        ({"size": "many"}, "in an unknown form"),
        ({"rfilename": 7}, "in an unknown form"),
        ({"rfilename": "config.json", "size": 2**40}, "with 1099511627776 bytes"),
        ({"size": 2**60, "lfs": None}, "must be fetched, but the disk"),
    ],
)
def test_a_list_with_impossible_sizes_is_refused(hub, monkeypatch, changes, reason):
    honest = Hub.listing

    def listing(self: Hub) -> dict[str, Any]:
        made: dict[str, Any] = honest(self)
        made["siblings"].append(dict(made["siblings"][0], rfilename="z.safetensors") | changes)
        return made

    monkeypatch.setattr(Hub, "listing", listing)
    with pytest.raises(UserError, match=reason):
        Pull("ada/tiny").run(lambda told: None)
    assert hub.asked == []


def test_a_model_that_the_hub_lacks_ends_the_process_with_status_1(hub):
    pull = Pull("ada/other")
    with pytest.raises(UserError, match="no model ada/other"):
        pull.run(lambda told: None)
    assert (pull.exit_status, pull.log_file.read_text()) == (1, "")


@pytest.mark.slow
def test_a_wrong_checksum_is_refused_and_leaves_nothing(hub):
    hub.lies["model.safetensors"] = "0" * 64
    pull = Pull("ada/tiny")
    with pytest.raises(UserError, match=r"model\.safetensors of ada/tiny is damaged"):
        pull.run(lambda told: None)
    assert not pull.folder.exists()
    assert not [*beside(pull.folder).glob("*.safetensors"), *beside(pull.folder).glob(".*.partial")]
    assert model_list.listed_models() == ()


def test_a_fetch_that_is_cancelled_at_its_very_end_adds_no_model(hub):
    pull = Pull("ada/tiny")

    def cancel(told: FetchProgress) -> None:
        eventually(lambda: pull._process.poll() is not None)  # all that it says is said
        pull.cancel()

    assert pull.run(cancel) is None
    assert model_list.listed_models() == ()


def test_a_model_that_is_larger_than_offered_is_refused_before_anything_comes(hub):
    with pytest.raises(UserError, match=r"lists .* for ada/tiny, and 0\.1 MiB were offered"):
        Pull("ada/tiny", 2**20 // 8).run(lambda told: None)
    assert hub.asked == []


@pytest.mark.slow
def test_a_cancelled_fetch_continues_in_another_process(hub):
    hub.stalls["model.safetensors"] = 150_000
    pull, half = Pull("ada/tiny"), threading.Event()
    stopper = threading.Thread(target=lambda: (half.wait(30), pull.cancel()))
    stopper.start()
    partial = 0

    def watch(told: FetchProgress) -> None:
        nonlocal partial
        if told.file == "model.safetensors" and told.done > 100_000:
            half.set()

    assert pull.run(watch) is None
    stopper.join()
    assert not pull.folder.exists(), "it is there once it is whole"
    (left,) = beside(pull.folder).glob(".*.partial")
    partial = left.stat().st_size
    assert 0 < partial <= 150_000
    del hub.stalls["model.safetensors"]
    pulled(hub)
    assert ("model.safetensors", partial) in hub.asked
    assert [name for name, _ in hub.asked].count("config.json") == 1


@pytest.mark.slow
def test_a_failed_fetch_says_why(hub, monkeypatch):
    with pytest.raises(UserError, match="OWNER/NAME"):
        Pull("../../etc/passwd")
    with pytest.raises(UserError, match="no model ada/other") as refused:
        Pull("ada/other").run(lambda told: None)
    assert hub.url in str(refused.value)
    with (
        hold_lock(model_list.folder() / ".ada--tiny.lock", "taken"),
        pytest.raises(UserError, match="fetched already"),
    ):
        Pull("ada/tiny").run(lambda told: None)
    hub.files["config.json"] = json.dumps({"model_type": "mamba"}).encode()
    with pytest.raises(UserError, match="'mamba'"):
        Pull("ada/tiny").run(lambda told: None)
    assert "model.safetensors" not in {name for name, _ in hub.asked}, (
        "gigabytes are not fetched in vain"
    )
    hub.files = {"pytorch_model.bin": b"x"}
    with pytest.raises(UserError, match=r"no \.safetensors"):
        Pull("ada/tiny").run(lambda told: None)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UserError, match="cannot be reached"):
        Pull("ada/tiny").run(lambda told: None)


def test_a_full_disk_is_noticed_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(
        hubs.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, 3 * 2**30)
    )
    hubs.check_room(tmp_path, [hubs.HubFile("a", 2 * 2**30, "0" * 40)])
    with pytest.raises(UserError, match="must be fetched, but the disk"):
        hubs.check_room(tmp_path, [hubs.HubFile("a", 3 * 2**30, "0" * 40)])
