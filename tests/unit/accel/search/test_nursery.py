"""A process that does not answer hangs; one that gets no processor is waited for."""

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from gpudeck.accel.search.candidate_protocol import Compile, Hung
from gpudeck.accel.search.nursery import Nursery
from gpudeck.accel.search.verdict import Source

PATIENCE_S = 0.6
_BUSY = "while True: pass"
_WORKS = """
import time
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
def candidate():
    pass
"""


@pytest.fixture(scope="module")
def nursery():
    found = Nursery()
    yield found
    found.close()


@pytest.fixture
def child(nursery):
    found = nursery.fork()
    yield found
    found.end()


def answer(child, tmp_path, text):
    file = tmp_path / "candidate.py"
    file.write_text(text)
    return child.ask(Compile(Source(str(file)), 90), PATIENCE_S)


@pytest.mark.parametrize("text", ["import time\ntime.sleep(60)", _BUSY])
def test_a_process_that_sleeps_or_computes_for_too_long_hangs(child, tmp_path, text):
    with pytest.raises(Hung):
        answer(child, tmp_path, text)


def test_a_process_that_gets_no_processor_does_not_hang(child, tmp_path):
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(child.pid, {core})
    with ExitStack() as stack:
        for _ in range(6):  # sessions of their own: the scheduler shares a core among sessions
            busy = subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True)
            stack.callback(busy.wait)
            stack.callback(busy.kill)
            os.sched_setaffinity(busy.pid, {core})
        assert answer(child, tmp_path, _WORKS)
