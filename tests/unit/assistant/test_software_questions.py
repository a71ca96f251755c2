"""Questions about software: versions, the backend of attention, tokens a joule, and models."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gpudeck.accel.attention import dispatch
from gpudeck.accel.attention.problem import Problem
from gpudeck.assistant.answers import answer
from gpudeck.assistant.intents.composed import compose
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.query import printed
from gpudeck.assistant.query.attention import attention, shape_of
from gpudeck.assistant.query.attention_on_card import Shape, expect
from gpudeck.assistant.query.request import Query
from gpudeck.assistant.query.versions import versions
from gpudeck.assistant.reader.reading import Reading
from gpudeck.language.words import words
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle, Snapshot

H200 = Device("GPU-a", 0, "NVIDIA H200", "nvidia", "",
              {"driver": "580.1", "CUDA": "13.0", "compute capability": "9.0"})  # fmt: skip
AMPERE = Device("GPU-b", 1, "NVIDIA GeForce RTX 3090", "nvidia", "",
                {"driver": "580.1", "compute capability": "8.6"})  # fmt: skip


def asked(head: str, *marks: str, text: str = "", **spans: str) -> tuple[Query, ...]:
    """Return the queries that are made of a reading."""
    found = tuple(spans.items())
    reading = Reading(((head, 0.9),), "", frozenset(marks), found, tuple((0, 0) for _ in found), ())
    made = compose(reading, head, Known(("train",), ()), State(), 1e9, text)
    assert isinstance(made.request, Query) and not made.left
    return made.request, *made.also


def snapshot(*devices: Device) -> Snapshot:
    states = tuple(DeviceState(device, None, Idle(0.0)) for device in devices)
    return Snapshot(1, 1e9, states, (), Settings(), "nvml")


@pytest.mark.parametrize(
    ("text", "measures"),
    [
        ("which cuda version", ["cuda"]),
        ("driver, cuda and torch?", ["cuda"]),
        ("torch and gpudeck", ["gpudeck", "torch"]),
        ("Treiber und PyTorch", ["driver", "torch"]),
        ("which version is this", [""]),
    ],
)
def test_versions_that_are_named_are_asked_for_and_else_all(text: str, measures: list[str]) -> None:
    made = asked("ask gpus", "measure=driver", text=text)
    assert made == tuple(Query("versions", measure) for measure in measures)


def test_the_drivers_of_gpus_have_a_row_each() -> None:
    assert asked("ask gpus", "measure=driver", text="driver?") == (Query("devices", "driver"),)
    one = asked("ask gpus", "measure=driver", text="its cuda", gpus="1")
    assert one == (Query("devices", "driver", devices=(1,)),)


def test_cuda_is_told_as_the_driver_supports_it_beside_torch() -> None:
    query = Query("versions", "cuda")
    told = answer(query, versions(query, snapshot(H200)), words("en"))
    assert "supports CUDA up to version 13.0" in told and "580.1" in told and "torch" in told
    unknown = answer(query, versions(query, snapshot(AMPERE)), words("en"))
    assert "CUDA is unknown: not reported by this device" in unknown and "580.1" in unknown


@pytest.mark.parametrize(
    ("text", "shape", "said"),
    [
        ("which kernel runs here", Shape(), ()),
        ("causal d=128 bf16 4k", Shape(), ("dtype", "head_dim", "causal", "seq")),
        ("not causal fp16, head size 64, 700 tokens", Shape("float16", 64, False, 700),
         ("dtype", "head_dim", "causal", "seq")),
        ("12 heads", Shape(heads=12, kv_heads=12), ("heads",)),
        ("0 heads", Shape(), ()),
    ],
)  # fmt: skip
def test_the_shape_of_attention_is_read_and_the_rest_assumed(
    text: str, shape: Shape, said: tuple[str, ...]
) -> None:
    assert shape_of(text) == (shape, said)


def test_the_backend_that_was_measured_fastest_on_the_card_is_told() -> None:
    (query,) = asked("ask backend", text="which kernel for bf16 4k")
    told = answer(query, attention(query, snapshot(H200, AMPERE)), words("en"))
    rates = expect("NVIDIA H200", (9, 0), Shape()).rates
    best = max((name for name in rates if name not in ("fa3", "fa4")), key=rates.__getitem__)
    assert f"On GPU 0 (NVIDIA H200), attention would run with {best} forward" in told
    assert f"| {best} | {rates[best]:.0f} TFLOP/s |" in told
    assert "For bfloat16 and 4096 tokens. I assumed: head size 128, causal," in told


def test_a_card_that_nobody_measured_has_the_order_of_its_kind() -> None:
    query = Query("attention", devices=(1,), text="fp16")
    told = answer(query, attention(query, snapshot(H200, AMPERE)), words("en"))
    assert "(NVIDIA GeForce RTX 3090), attention is tried with flash, cudnn and triton" in told
    assert "Nothing like it was measured" in told and "TFLOP/s" not in told
    assert expect("NVIDIA GeForce RTX 2080 Ti", (7, 5), Shape()).backends[0] == "turing"


def log(number: int, text: str) -> Job:
    folder = paths.job_folder(number)
    folder.mkdir(parents=True)
    (folder / "log").write_text(text)
    return Job(number, Spec(("train",), "train", "/"), 0.0, Queued())


def test_tokens_a_joule_are_those_a_second_for_a_watt(home: object) -> None:
    printed_line = log(1, '{"step": 3, "tokens_per_second": 1000.0}\n{"step": 4, "loss": 2.0}\n')
    assert printed.tokens_per_joule(printed_line, 500.0) == (2.0, "")
    prose = log(2, "step 7: loss 3.1, 12,400 tok/s on 4 GPUs\n")
    assert printed.tokens_per_joule(prose, 3100.0) == (4.0, "")
    assert printed.tokens_per_joule(prose, None)[0] is None
    assert printed.tokens_per_joule(log(3, "step 7: loss 3.1\n"), 300.0)[0] is None
    assert printed.loss(log(4, "step 7: loss 3.1\n")) == (3.1, "")


def test_tokens_a_watt_are_asked_of_the_jobs_that_run() -> None:
    (query,) = asked("ask gpus", "measure=tokens_per_watt")
    assert query == Query("jobs", "tokens_per_joule", states=("running", "starting"))


def test_the_memory_of_a_model_is_answered_without_a_reserve() -> None:
    assert asked("ask models", "measure=size", model="7B") == (
        Query("models", "largest", amount=7e9),
    )


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("shape", "capability"),
    [
        (Shape(), (9, 0)), (Shape(seq=3000, causal=False), (9, 0)),
        (Shape("float16", 64, seq=700, batch=3), (9, 0)), (Shape("float32"), (9, 0)),
        (Shape(), (8, 6)), (Shape(), (7, 5)), (Shape("float32"), (7, 5)), (Shape(), (10, 0)),
    ],
)  # fmt: skip
def test_what_is_told_is_what_the_program_itself_explains(
    shape: Shape, capability: tuple[int, int], direction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "NVIDIA H200" if capability == (9, 0) else "NVIDIA unknown"
    monkeypatch.setattr(dispatch, "_gpu", lambda problem: name)
    monkeypatch.setattr(dispatch, "fail_to_load", lambda backend: None)
    problem = Problem(shape.batch, shape.heads, shape.kv_heads, shape.seq, shape.seq,
                      shape.head_dim, getattr(torch, shape.dtype), torch.device("cuda"), capability,
                      0.1, right=0 if shape.causal else None)  # fmt: skip
    dispatch.choose.cache_clear()
    told, explained = (
        expect(name, capability, shape, direction),
        dispatch.choose(problem, direction=direction),
    )
    dispatch.choose.cache_clear()
    rates = {c.backend: c.tflops for c in explained.candidates if c.tflops is not None}
    assert told.rates == pytest.approx(rates, rel=0.01)
    assert told.basis == explained.basis
    if told.basis == "order":  # which of them can is found out by torch
        assert explained.backend in told.backends
    else:
        assert told.backends[0] == explained.backend
