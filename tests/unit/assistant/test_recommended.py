"""The RWKV-7 that fits a machine is recommended, with what it needs and the speed to expect."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.accel.training.shapes import RECURRENT_SHAPES
from gpudeck.app.models import offer_text
from gpudeck.assistant.library.describe import ABLE
from gpudeck.assistant.library.hub_search import NAME
from gpudeck.assistant.library.recommended import RELEASED, Recommendation, recommend
from gpudeck.scheduler.protocol.snapshot import DeviceState
from tests.gui import snapshots
from tests.support import in_english

GIB = 2**30
LARGE, MIDDLE, SMALL = RELEASED


def card(free: int, name: str = "NVIDIA L4") -> DeviceState:
    """Return a GPU with so much free memory."""
    (state,) = snapshots.gpu_snapshot(1).devices
    assert state.reading is not None
    reading = msgspec.structs.replace(
        state.reading, values={"mem_total": 80.0 * GIB, "mem_used": 80.0 * GIB - free}
    )
    device = msgspec.structs.replace(state.device, name=name)
    return msgspec.structs.replace(state, device=device, reading=reading)


def test_the_table_holds_models_that_are_of_use_from_the_largest_to_the_smallest() -> None:
    sizes = [model.parameters for model in RELEASED]
    assert sizes == sorted(sizes, reverse=True) and min(sizes) >= ABLE
    assert all(NAME.fullmatch(model.name) for model in RELEASED)
    for model, shape in ((MIDDLE, "rwkv7-1.5B"), (SMALL, "rwkv7-0.4B")):
        layers, channels, *ranks = RECURRENT_SHAPES[shape]
        matrices = layers * channels * (12 * channels + 2 * sum(ranks)) + 2 * 65536 * channels
        assert model.channels == channels
        assert model.parameters == pytest.approx(matrices, rel=0.002)
    for model in RELEASED:
        assert model.read("cuda") < 2 * model.parameters < model.bytes * 1.01


@pytest.mark.parametrize(
    ("free", "model"),
    [(80, LARGE), (7.5, LARGE), (6.5, MIDDLE), (4.5, MIDDLE), (4, SMALL), (2.5, SMALL)],
)
def test_the_largest_model_that_fits_the_free_memory_of_a_gpu_is_chosen(free, model) -> None:
    found = recommend([card(GIB), card(int(free * GIB))], 0)
    assert isinstance(found, Recommendation)
    assert (found.model, found.device) == (model, "cuda")
    assert found.speed == 300e9 / model.read("cuda"), "of the L4's data sheet"


def test_a_gpu_in_mig_mode_counts_by_its_instances() -> None:
    whole, part = card(80 * GIB), card(4 * GIB)
    divided = msgspec.structs.replace(whole, device=msgspec.structs.replace(whole.device, mig=True))
    found = recommend([divided, part], 0)
    assert isinstance(found, Recommendation) and found.model == SMALL


def test_an_unknown_card_gets_no_estimate_and_a_known_one_says_that_it_is_one() -> None:
    unknown = recommend([card(8 * GIB, "NVIDIA GeForce RTX 4711")], 0)
    assert isinstance(unknown, Recommendation) and not unknown.speed
    assert "no speed is estimated" in offer_text.speed_text(unknown)
    known = recommend([card(8 * GIB)], 0)
    assert isinstance(known, Recommendation)
    assert "Estimated: at most 54.0 tok/s" in offer_text.speed_text(known)
    assert "judges its own drafts" in offer_text.change_text(known)


def test_without_a_gpu_the_smallest_runs_on_the_cpu_or_the_reason_is_given() -> None:
    recorded = snapshots.gpu_snapshot(1, replay=True).devices
    for devices in ((), recorded, [card(2 * GIB)], snapshots.cpu_snapshot().devices):
        found = recommend(devices, 3 * GIB)
        assert isinstance(found, Recommendation)
        assert (found.model, found.device, found.gpu) == (SMALL, "cpu", None)
        assert "not measured" in offer_text.speed_text(found)
        assert "judges" not in offer_text.change_text(found)
    none = recommend((), GIB)
    assert not isinstance(none, Recommendation)
    assert "needs 1.9 GiB of memory, and 1 GiB are free" in in_english(none)
