"""The table of peaks: what is known of each GPU, and nothing of others."""

import subprocess
import sys

import pytest

from gpudeck.accel.runtime.peaks import PRECISIONS, TABLE, peak_bandwidth, peak_tflops


@pytest.mark.parametrize("device", TABLE)
def test_narrower_numbers_are_never_slower_and_every_row_has_a_source(device):
    known = [peak_tflops(device, p) for p in PRECISIONS]
    rates = [rate for rate in known if rate is not None]
    assert rates == sorted(rates)
    assert rates[0] > 1
    assert peak_bandwidth(device) > 1e11
    assert "data sheet" in TABLE[device].source or "whitepaper" in TABLE[device].source


def test_what_is_not_known_is_none():
    assert peak_tflops("NVIDIA H100 80GB HBM3", "fp4") is None
    assert peak_tflops("NVIDIA GeForce RTX 2080 Ti", "bfloat16") is None
    assert peak_tflops("NVIDIA H200", "source") is None
    assert peak_tflops("CPU: AMD EPYC, 2 threads", "float32") is None
    assert peak_bandwidth("a card") is None
    assert peak_tflops("NVIDIA H200", "fp8") == 1979


def test_the_window_reads_it_without_torch():
    code = "import gpudeck.accel.runtime.peaks, sys; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True)
    assert ran.stdout.strip() == b"False"
