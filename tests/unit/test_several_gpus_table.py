"""The manual's table about several GPUs is that of the measured rows."""

from __future__ import annotations

from tests.benchmarks.multi_gpu.table import PAGE, filled


def test_the_table_of_the_manual_holds_the_measured_shares():
    text = PAGE.read_text()
    assert filled(text) == text
    assert "| 32/8 heads, 16k |" in text
