"""A proof of people's code is a job; one that finds no free device does not pass the queue by."""

from __future__ import annotations

import pytest

from gpudeck.accel.inject import prove as proving
from gpudeck.accel.inject.rewrite import changes
from gpudeck.app.code.linking import prove_change
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from tests.integration.deck import python, running


def test_a_proof_that_waits_too_long_for_a_device_is_cancelled_and_says_so(
    shared, tmp_path, monkeypatch
):
    monkeypatch.setattr(proving, "TIMEOUT_S", 1.0)
    file = tmp_path / "m.py"
    file.write_text(
        f"import torch\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
        "def f(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n"
    )
    (change,), _ = changes([file])
    other = shared.submit(python("import time; time.sleep(60)"), gpus=1)
    running(shared, other)
    try:
        with pytest.raises(UserError, match="no GPU was free in time"):
            prove_change(change, Client, "cuda")
        waiting = [j for j in shared.jobs(10) if j.spec.name == "prove m.py"]
        assert [j.status for j in waiting] == ["cancelled"]
        assert not (tmp_path / "ran").exists(), "nothing ran beside the queue"
    finally:
        other.cancel()
