"""Reports in German, French and Spanish have no English sentence, with real jobs and alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import msgspec
import pytest
from PySide6.QtCore import QBuffer, QSizeF
from PySide6.QtGui import QPdfWriter

from gpudeck.accel.workloads import catalog
from gpudeck.app.cli.queue.run import submit_workload
from gpudeck.app.report import pdf
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.assistant.reports.report import Excerpt, Report
from gpudeck.language.languages import Language
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import python
from tests.support import eventually, state_folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("report languages")]
WAIT_S = 40.0
_ENGLISH = re.compile(
    r"(?i)\b(?:the|of|is|it|its|with|and|been|for|from|which|that|were|are|by|than|this|there"
    r"|cannot|not|was(?= \w+ed\b)|within|readings?|measured|allowed|seconds?)\b"
)
"""Words that only English has. German "was" is no past of a verb."""
_STALLS = (
    "import json, time\n"
    "print(json.dumps({'gpudeck': 'progress', 'done': 1, 'total': 9}), flush=True)\n"
    "time.sleep(600)\n"
)
_TYPED = re.compile(r"\b\w+=\S+")
"""Parameters as the command line takes them."""
_SUBMITTED: dict[str, int] = {}


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Provide a daemon with a job that measured, one that failed, and alerts."""
    with state_folder(tmp_path_factory.mktemp("languages") / "home"):
        settings.save(
            Settings(source="cpu", model_folder=TEMPLATE, alert_stuck_job=0.01, telemetry_hz=5.0)
        )
        with Client() as client:
            sizes = {"batch": "1", "heads": "2", "seq": "128", "head_dim": "32", "seconds": "0.2"}
            measured = submit_workload(client, catalog.find("attention"), sizes)
            failed = client.submit(python("print('ValueError: lr=7'); raise SystemExit(3)"))
            stalls = client.submit(python(_STALLS), name="stalls", gpus=1)
            for job in (measured, failed):
                client.wait(job.id, WAIT_S)
            eventually(lambda: [a for a in client.alerts() if a.job == stalls.id], WAIT_S)
            client.cancel(stalls.id)
            _SUBMITTED.update(measured=measured.id, failed=failed.id, stalls=stalls.id)
            yield client


def written(report: Report) -> dict[str, str]:
    """Return what a report says in each format, without what jobs printed and markup."""
    sections = (
        msgspec.structs.replace(s, blocks=tuple(b for b in s.blocks if not isinstance(b, Excerpt)))
        for s in report.sections
    )
    report = msgspec.structs.replace(report, sections=tuple(sections))
    page = re.sub(r"(?s)<(style|pre|code)\b.*?</\1>", " ", html(report))
    text = re.sub(r"(?s)(```+)text\n.*?\n\1|`[^`]+`", " ", markdown(report))
    writer = QPdfWriter(QBuffer())
    document, _charts = pdf._document(report, writer, QSizeF(700, 1000))
    return {
        "html": unescape(re.sub(r"<[^>]*>", " ", page)),
        "md": text,
        "pdf": document.toPlainText(),
    }


@pytest.mark.parametrize("about", ["measured", "failed", "stalls", "day"])
@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_a_report_has_no_english_sentence(
    deck: Client, qapp: object, language: Language, about: str
) -> None:
    job = _SUBMITTED.get(about)
    answer = Assistant().report(job, language=language, daily=about == "day")
    assert answer.report is not None
    for ending, whole in written(answer.report).items():
        text = _TYPED.sub(" ", whole)
        found = [text[max(m.start() - 40, 0) : m.end() + 40] for m in _ENGLISH.finditer(text)]
        assert found == [], (ending, found)
    told = markdown(answer.report)
    if about == "measured":
        assert "TFLOP/s" in told and "seq=128" in told and "float32" in told
    if about in ("stalls", "day"):
        assert "stalls" in told and {"de": "Alarm", "fr": "lerte", "es": "lerta"}[language] in told
