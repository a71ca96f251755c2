"""On a full disk nothing promises that a job would start: the forecast says what submit says."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store import store as store_module
from tests.unit.scheduler.own_queue import CPU, make_queue, submit

SPEC = Spec(("true",), "x", "/")


def test_after_a_refused_submission_the_forecast_refuses_until_a_change_succeeds(
    store: Store,
) -> None:
    queue = make_queue(store)
    (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(UserError, match="disk is full"):
        submit(queue, "true", *["x" * 100_000] * 5)
    with pytest.raises(UserError, match="is full: no job can be queued now"):
        finish(queue.submission.forecast(SPEC, [CPU]))
    store.connection.execute("PRAGMA max_page_count = 1000000")
    submit(queue)
    assert finish(queue.submission.forecast(SPEC, [CPU])).wait is None


def test_a_disk_without_room_is_found_before_anything_was_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(store)
    assert finish(queue.submission.forecast(SPEC, [CPU])).wait is None
    full = SimpleNamespace(f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(store_module.os, "statvfs", lambda path: full)
    with pytest.raises(UserError, match="Free some space"):
        finish(queue.submission.forecast(SPEC, [CPU]))
    assert os.statvfs is store_module.os.statvfs
