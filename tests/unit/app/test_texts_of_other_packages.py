"""The window says in its language what workloads, code and the assistant's process tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from gpudeck.accel.inject.scan import scan
from gpudeck.accel.lessons.records import Measured, explain_rates
from gpudeck.accel.result import Check, verdict_of
from gpudeck.accel.runtime.refusals import CannotCompute, this_gpu_has
from gpudeck.accel.workloads.catalog import WORKLOADS
from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.assistant.notes import UNCHECKED, left_out_note, note_text
from gpudeck.app.assistant.presets import first_questions, own_presets
from gpudeck.app.code.rows import gain_of
from gpudeck.app.language import texts
from gpudeck.app.workloads.form import WorkloadForm
from gpudeck.language.text import Text, join_texts, phrase
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, explain


@pytest.fixture(params=["de", "fr", "es"], autouse=True)
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    texts.use(request.param)
    yield request.param
    texts.use("en")


def test_every_mistake_in_a_form_is_told_in_the_language() -> None:
    for workload in WORKLOADS:
        for param in workload.params:
            for typed in ("x", "-1", "1e99", "512,512", ",".join("9" * 40), "both,auto,?"):
                form = WorkloadForm(workload, "nvidia")
                form.set(param.name, typed)
                wrong = form.errors().get(param.name, "")
                assert not wrong.startswith(("is ", "takes ", "names ")), (param.name, wrong)


H100 = "NVIDIA H100 80GB HBM3"
OLD_GPU = this_gpu_has(phrase("needs compute capability {version}", version="10.0"), (9, 0))
MEASURED_HERE = Measured(
    H100, "", "", "forward", "", "", 1e9, "fa3", {"hopper": 512.3, "fa3": 590.1}, 9, 1_763_820_180.0
)  # fmt: skip
ERROR = Check(phrase("{name}: relative error", name="out"), 3.1e-2, 2.4e-3, "out")


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (verdict_of(()), "pass", "bestanden"),
        (verdict_of([ERROR.fault]),
         "fail: out: relative error is 0.031, above the bound 0.0024",
         "nicht bestanden: out: relativer Fehler ist 0,031, über der Grenze 0,0024"),
        (join_texts((explain_rates([H100], {"hopper": 612.2, "fa3": 590}, ["hopper", "fa3"], True),
                     phrase("not {backend}: it {refusal}", backend="fa4", refusal=OLD_GPU))),
         f"measured fastest on {H100}, 612 TFLOP/s, fa3 590; not fa4: it needs compute capability"
         " 10.0; this GPU has 9.0",
         f"am schnellsten gemessen auf {H100}, 612 TFLOP/s, fa3 590; nicht fa4: Es braucht Compute"
         " Capability 10.0; diese GPU hat 9.0"),
        (MEASURED_HERE.reason(["hopper", "fa3"]),
         "measured fastest here on 2025-11-22 14:03 UTC, 512.3 us, fa3 590.1",
         "hier am 2025-11-22 14:03 UTC am schnellsten gemessen, 512,3 us, fa3 590,1"),
        (CannotCompute("flash", phrase("takes no softcap")).note,
         "cannot do this: it takes no softcap", "kann das nicht: Es unterstützt kein Softcap"),
        ("an old reason of nobody", "an old reason of nobody", "an old reason of nobody"),
    ],
)  # fmt: skip
def test_reasons_and_verdicts_of_results(
    language: str, value: Text | str, english: str, german: str
) -> None:
    assert str(value) == english
    shown = texts.tr_text(value)
    if language == "de":
        assert shown == german
    elif german != english:
        assert shown not in (english, german)


def test_what_was_found_in_code_is_told_in_the_language(language: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "block_size = 2048\nn_head = 16\n\ndef attend(q, k, v, m):\n"
        "    return (q @ k.mT).masked_fill(m, -1e9).softmax(-1) @ v\n"
        "\ndef kept(q, k, v):\n    a = (q @ k.mT).softmax(-1)\n    return a @ v, a\n"
    )
    first, second = scan([tmp_path])
    texts_ = [texts.tr_text(text) for text in (first.form, first.reason, second.reason)]
    assert gain_of(first) == texts.tr("{amount} a sequence", amount="128 MiB")
    if language == "de":
        assert texts_ == [
            "softmax(Q Kᵀ) V von Hand: @ mit Maske, @",
            "stattdessen accel.attention: die Scores, Queries × Keys für jeden Kopf, bleiben nicht"
            " mehr im Speicher: 128 MiB für eine Sequenz von 2.048 Tokens und 16 Köpfe in 16"
            "\u00a0Bit",
            "die Attention-Gewichte werden zurückgegeben (Zeile 9)",
        ]
    english = {str(text) for text in (first.form, first.reason, second.reason)}
    assert not english & set(texts_)


def test_the_presets_ask_the_same_in_each_language(language: str) -> None:
    translated = [*own_presets(), *first_questions()]
    texts.use("en")
    english = [*own_presets(), *first_questions()]
    for one, other in zip(translated, english, strict=True):
        assert one.text != other.text
        assert one.query is not None and other.query is not None
        assert structs.replace(one.query, time=None) == structs.replace(other.query, time=None)


def test_notes_are_values_and_older_ones_stay_readable(language: str) -> None:
    first = {"de": "die ersten 3", "fr": "les 3 premiers", "es": "los primeros 3"}[language]
    assert note_text(Message("assistant", "", note=left_out_note(3))).startswith(first)
    held = phrase("waiting for the GPU ({why})", why=explain(HeldByJobs((7,))))
    assert "runs" not in note_text(Message("assistant", "", "waiting", held))
    older = Message("assistant", "a", note="free chat, not checked against facts", wants="chat")
    assert note_text(older) == "free chat, not checked against facts"
    newer = note_text(Message("assistant", "a", wants="chat"))
    assert newer == texts.tr_text(UNCHECKED) != "free chat, not checked against facts"
