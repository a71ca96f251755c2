"""The window says in its language what workloads, code and the assistant's process tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.accel.inject.scan import scan
from gpudeck.accel.workloads.catalog import WORKLOADS
from gpudeck.app.assistant.message_tree import Message
from gpudeck.app.assistant.notes import UNCHECKED, left_out_note, note_text
from gpudeck.app.assistant.session_files import own_presets, preset_query
from gpudeck.app.code.rows import gain_of
from gpudeck.app.language import texts
from gpudeck.app.workloads.form import WorkloadForm
from gpudeck.language.text import phrase
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


@pytest.mark.parametrize(
    ("told_in_english", "german"),
    [
        ("pass", "bestanden"),
        ("fail: out: relative error is 3.1e-02, above the bound 2.4e-03",
         "nicht bestanden: out: relativer Fehler ist 3.1e-02, über der Grenze 2.4e-03"),
        ("auto: measured fastest on NVIDIA H100 80GB HBM3, 612 TFLOP/s, fa3 590; not fa4: it needs"
         " compute capability 10.0; this GPU has 9.0",
         "auto: am schnellsten gemessen auf NVIDIA H100 80GB HBM3, 612 TFLOP/s, fa3 590; nicht fa4:"
         " Es braucht Compute Capability 10.0; diese GPU hat 9.0"),
        ("auto: measured fastest here on 2026-11-22 14:03 UTC, 512.3 us, fa3 590.1; not fa4: it"
         " needs compute capability 10.0; this GPU has 9.0; not fa3: it has no backward pass",
         "auto: hier am 2026-11-22 14:03 UTC am schnellsten gemessen, 512,3 us, fa3 590,1; nicht"
         " fa4: Es braucht Compute Capability 10.0; diese GPU hat 9.0; nicht fa3: Es hat keinen"
         " Rückwärtsdurchgang"),
        ("fail: relative error, 3 rows is 3.1e-02, above the bound 2.4e-03; 2 of 48 cells were"
         " wrong, first fa3 at rwkv7, batch 8, 2,048 tokens, 16 heads of 64",
         "nicht bestanden: relativer Fehler, 3 Zeilen ist 3.1e-02, über der Grenze 2.4e-03; 2 von"
         " 48 Zellen waren falsch, als erste fa3 bei rwkv7, Batch 8, 2.048 Tokens, 16 Köpfe zu"
         " 64"),
        ("the fastest of 48 cells: forward, head size 128, sequence 8192, causal",
         "die schnellste von 48 Zellen: vorwärts, Kopfgröße 128, Sequenz 8192, kausal"),
        ("the same kernel twice: 1.002 (0.998 to 1.010)",
         "derselbe Kernel zweimal: 1,002 (0,998 bis 1,010)"),
        ("cannot do this: it takes no softcap; takes no window on a CPU",
         "kann das nicht: Es unterstützt kein Softcap; unterstützt auf einer CPU kein Fenster"),
        ("{braces} nobody knows", "{braces} nobody knows"),
    ],
)  # fmt: skip
def test_reasons_and_verdicts_of_results(language: str, told_in_english: str, german: str) -> None:
    shown = texts.tr_sentence(told_in_english)
    if language == "de":
        assert shown == german
    elif german != told_in_english:
        assert shown not in (told_in_english, german)


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
    translated = [preset_query(preset.text) for preset in own_presets()]
    texts.use("en")
    english = [preset_query(preset.text) for preset in own_presets()]
    assert translated == english and None not in english
    assert preset_query("What happened to me?") is None


def test_notes_are_values_and_older_ones_stay_readable(language: str) -> None:
    first = {"de": "die ersten 3", "fr": "les 3 premiers", "es": "los primeros 3"}[language]
    assert note_text(Message("assistant", "", note=left_out_note(3))).startswith(first)
    held = phrase("waiting for the GPU ({why})", why=explain(HeldByJobs((7,))))
    assert "runs" not in note_text(Message("assistant", "", "waiting", held))
    older = Message("assistant", "a", note="free chat, not checked against facts", wants="chat")
    assert note_text(older) == "free chat, not checked against facts"
    newer = note_text(Message("assistant", "a", wants="chat"))
    assert newer == texts.tr_text(UNCHECKED) != "free chat, not checked against facts"
