"""The page on people's own code finds, shows, proves, applies and undoes, by keys alone."""

from __future__ import annotations

import re
import textwrap

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from gpudeck.accel.inject.prove import Proof, Trial
from gpudeck.app.code.linking import Applied
from gpudeck.app.code.page import CodePage
from gpudeck.app.code.requests import ApplyCode, ProveCode, ScanCode, UndoCode
from gpudeck.language.text import phrase
from tests.gui.conftest import RecordingLink
from tests.gui.readable import nameless

MODEL = textwrap.dedent("""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, dim=768, n_head=12, block_size=1024, head_dim=64):
            super().__init__()
            self.qkv = nn.Linear(dim, 3 * dim)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            a = (q @ k.mT) * 0.2
            return a.softmax(-1) @ v

    def weights(q, k, v):
        a = (q @ k.mT).softmax(-1)
        return a @ v, a
""")
TRIALS = (
    Trial("x [2, 16, 32]", "float32", True, 2e-7, 3e-7, True, ("linked",), 4.0, 2.0, 4096, 1024),
    Trial("x [2, 16, 32]", "bfloat16", True, 3e-3, 2e-3, True, ("linked",), 1.0, 1.0, 2048, 512),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.py").write_text(MODEL)
    return source


@pytest.fixture
def page(qapp, clean_qt):
    window = QWidget()
    window.resize(1200, 800)
    made = CodePage(RecordingLink(lambda _: None))
    made.setParent(window)
    made.resize(window.size())
    window.show()
    yield made
    window.close()
    window.deleteLater()


def press(page: CodePage, keys: str) -> None:
    """Press keys as a person would, in the widget that has the focus."""
    key = {"Return": Qt.Key.Key_Return, "Esc": Qt.Key.Key_Escape, "F5": Qt.Key.Key_F5,
           "P": Qt.Key.Key_P, "Z": Qt.Key.Key_Z}[keys.rpartition("+")[2]]  # fmt: skip
    held = Qt.KeyboardModifier.ControlModifier
    QTest.keyClick(
        page.focusWidget() or page, key, held if "+" in keys else Qt.KeyboardModifier.NoModifier
    )


def request(page: CodePage):
    """Return the request that was sent last."""
    return page._link.calls[-1].request


def answer(page: CodePage, value=None) -> None:
    """Answer the last request; what reads or undoes code is carried out."""
    call = page._link.calls[-1]
    call.reply(call.request.carry_out(call) if value is None else value)


def opened(page: CodePage, folder) -> None:
    page.path.setText(str(folder))
    page.path.setFocus()
    press(page, "Return")
    assert request(page) == ScanCode(str(folder))
    answer(page)


def test_attention_is_listed_with_gain_and_risk_and_the_change_side_by_side(page, folder):
    assert "Open a folder" in page.empty.text()
    opened(page, folder)
    cells = [row.cells for row in page.found.rows]
    assert [(c[0], c[1]) for c in cells] == [("model.py:12", "link"), ("model.py:16", "leave")]
    assert re.fullmatch(r"[\d.]+x on H200", cells[0][3])
    assert "predicted on an NVIDIA H200" in page.why.text()
    assert cells[0][4] == "24 MiB a sequence"
    assert "1,024 tokens and 12 heads" in page.why.text()
    assert cells[0][5] == "rounding only"
    assert "weights are returned" in cells[1][5] and cells[1][3] == "-"
    assert "a = (q @ k.mT) * 0.2" in page.diff.left.toPlainText()
    assert "_gpudeck.scores(q, k.mT)" in page.diff.right.toPlainText()
    assert len(page.diff.right.extraSelections()) == 3  # the import and two products
    assert len(page.diff.left.extraSelections()) == 2
    assert page.outcome.text() == "2 attentions found, 1 can be linked"
    assert nameless(page) == []


def test_nothing_is_run_before_a_person_agrees(page, folder):
    opened(page, folder)
    press(page, "Ctrl+P")
    assert page.question.isVisible()
    assert "runs code of model.py" in page.question.text.text()
    press(page, "Esc")
    assert not page.question.isVisible()
    assert isinstance(request(page), ScanCode)
    press(page, "Ctrl+P")
    page.question.yes.click()
    assert request(page) == ProveCode(str(folder / "model.py"))
    answer(
        page,
        (Proof(str(folder / "model.py"), 12, "proved", "proved", "Attention(dim=32)", TRIALS),),
    )
    assert page.outcome.text() == "1 of 1 proved"
    assert "4 ms before, 2 ms after (2 times as fast)" in page.proof.accessibleDescription()
    assert "3.0e-03 before, 2.0e-03 after" in page.proof.accessibleDescription()
    assert not page.proof.grab().isNull()


def test_apply_and_undo_by_keys(page, folder):
    opened(page, folder)
    model = folder / "model.py"
    press(page, "Ctrl+Return")
    assert "changes the file" in page.question.text.text()
    page.question.yes.click()
    assert request(page) == ApplyCode(str(model))
    _apply(model)
    answer(
        page,
        Applied(
            str(model),
            (12,),
            phrase("linked {n}", n=1),
            (Proof(str(model), 12, "proved", "proved", "", TRIALS),),
        ),
    )
    answer(page)  # it is read again
    assert page.found.rows[0].cells[:2] == ("model.py", "linked")
    assert "linked 1" in page.outcome.text()
    assert page.undo.isEnabled() and not page.apply.isEnabled()
    assert "_gpudeck" in page.diff.right.toPlainText()
    press(page, "Ctrl+Z")
    assert request(page) == UndoCode(str(model))
    answer(page)
    answer(page)
    assert model.read_text() == MODEL
    assert page.outcome.text() == "Restored"


def _apply(model) -> None:
    from gpudeck.accel.inject import journal
    from gpudeck.accel.inject.rewrite import changes

    (made,), _ = changes([model])
    journal.apply(model, made.before, made.after)


def test_a_failed_proof_and_a_missing_folder_say_why(page, folder):
    opened(page, folder)
    press(page, "Ctrl+P")
    page.question.yes.click()
    wrong = (Trial("x [2, 16, 32]", "float32", True, 1e-7, 0.5, False, ("linked",)),)
    answer(page, (Proof("m.py", 12, "wrong", "wrong: an error of 5.0e-01, float32", "A()", wrong),))
    assert "0 of 1 proved · wrong: an error" in page.outcome.text()
    assert page.proof.errors[0].passed is False
    page.path.setText(str(folder / "nowhere"))
    page.scan()
    page._link.calls[-1].fail("there is no file or folder")
    assert page.outcome.text() == "there is no file or folder"


def test_escape_leads_back(page):
    seen = []
    page.left.connect(lambda: seen.append(1))
    page.path.setFocus()
    press(page, "Esc")
    assert seen == [1]
