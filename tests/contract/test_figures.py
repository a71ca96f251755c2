"""The tables of figures in the documents are those of the measured rows."""

import pytest

from tests.benchmarks.figures import DOCUMENTS, GROUPS, ROOT, WHOLE, filled, table


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_hold_what_was_measured(document):
    text = (ROOT / document).read_text()
    assert "<!-- figures " in text
    assert text == filled(text), "run: python -m tests.benchmarks.figures"


def test_a_mean_stands_beside_its_worst_shape():
    for line in table([name + WHOLE for name in GROUPS]).splitlines()[2:]:
        _, what, peers, shapes, forward, *_ = (cell.strip() for cell in line.split("|"))
        assert what and peers
        assert shapes in ("0", "1") or shapes.startswith("1,") or " to " in forward
