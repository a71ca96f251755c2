"""Check what becomes of a job that failed: a later attempt, one with more memory, or none."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.jobs import Failed, Job, Queued, Running, Spec, Usage
from gpudeck.scheduler.protocol.memory_errors import needed_memory, next_memory, out_of_memory
from gpudeck.scheduler.queue.retry import MAX_WAIT_S, next_attempt, remaining_delay

FAILED = Failed(1.0, 2.0, "exit code 1", 1)
TORCH = (
    "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. "
    "Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 79.19 GiB of which 1.06 GiB is free. "
    "Process 12 has 40.00 GiB memory in use. Including non-PyTorch memory, this process has "
    "21.50 GiB memory in use. Of the allocated memory 20.1 GiB is allocated by PyTorch\n"
)


def job(tries: int = 0, **more: object) -> Job:
    spec = Spec(("train",), "train", "/", gpus=1, **more)  # type: ignore[arg-type]
    return Job(3, spec, 0.0, Running("n", ("GPU-0",), 0.0, 1, 1, "b"), tries=tries)


@pytest.mark.parametrize(
    "log",
    [
        TORCH,
        "RuntimeError: CUDA error: out of memory\n"
        "CUDA kernel errors might be asynchronously reported",
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "Error: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 17179869184 bytes.",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_out_of_memory_is_recognised(log: str) -> None:
    assert out_of_memory(log)
    found = next_attempt(job(memory=4 * GIB), FAILED, log, 80 * GIB, 100.0)
    assert found is not None and found[0].spec.memory > 4 * GIB
    assert found[0].state == Queued(), "at once"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "out of memory",
        "MemoryError",
        "Killed: Out of memory: process 12 (python)",
        "CUDA error: invalid argument",
    ],
)
def test_other_failures_are_not_taken_for_it(log: str) -> None:
    assert not out_of_memory(log)
    assert next_attempt(job(memory=4 * GIB), FAILED, log, 80 * GIB, 100.0) is None


def test_the_next_attempt_reserves_what_this_one_needed() -> None:
    assert needed_memory(TORCH, 0.0) == 42.0 * GIB, (
        "what the largest of its processes had, and what it asked for"
    )
    assert needed_memory("CUDA out of memory", 7.5 * GIB) == 7.5 * GIB
    assert next_memory(4 * GIB, 7.2 * GIB, 80 * GIB) == 8 * GIB
    assert next_memory(40 * GIB, 7.2 * GIB, 80 * GIB) == 48 * GIB, (
        "it had less than it reserved: the next size"
    )
    assert next_memory(64 * GIB, 0.0, 79.2 * GIB) == 0, "a GPU to itself"
    assert next_memory(300 * GIB, 0.0, 1000 * GIB) == 600 * GIB
    assert next_memory(4 * GIB, 0.0, None) == 0, (
        "nobody knows how much there is: a GPU to itself is always right"
    )


@settings(deadline=None)
@given(st.integers(1, 2**40), st.floats(0, 2**41), st.integers(2**30, 2**38))
def test_memory_grows_until_the_job_has_the_gpu_to_itself(
    reserved: int, need: float, largest: int
) -> None:
    steps = 0
    while reserved:
        new = next_memory(reserved, need, largest)
        assert new == 0 or reserved < new <= largest
        reserved, steps = new, steps + 1
        assert steps < 30


def test_a_size_in_the_log_counts_although_less_was_observed() -> None:
    seen = msgspec.structs.replace(job(memory=4 * GIB), usage=Usage(memory=5.5 * GIB))
    found = next_attempt(seen, FAILED, TORCH, 80 * GIB, 9.0)
    assert found is not None and found[0].spec.memory == 42 * GIB


def test_an_attempt_that_lacked_memory_takes_no_retry() -> None:
    found = next_attempt(
        msgspec.structs.replace(job(memory=4 * GIB, retries=1), usage=Usage(memory=5.5 * GIB)),
        FAILED,
        "CUDA out of memory",
        80 * GIB,
        9.0,
    )
    assert found is not None
    spec = found[0].spec
    assert (spec.memory, spec.retries, spec.spared, found[0].tries) == (6 * GIB, 1, 1, 1)
    assert (found[1][0].what, str(found[1][0].text)) == (
        "queued again",
        "with 6 GiB, as 4 GiB were not enough",
    )
    assert next_attempt(found[0], FAILED, "", None, 9.0) is not None, "and its retry is still there"


def test_a_job_with_a_gpu_to_itself_gets_no_more_memory() -> None:
    assert next_attempt(job(), FAILED, TORCH, 80 * GIB, 1.0) is None


def test_retries_come_later_and_later_and_end() -> None:
    found, waits = job(retries=4, backoff=10.0), []
    while (more := next_attempt(found, FAILED, "", None, 1000.0)) is not None:
        assert isinstance(more[0].state, Queued)
        waits.append(more[0].state.until - 1000.0)
        found = more[0]
    assert waits == [10.0, 20.0, 40.0, 80.0]
    assert found.tries == 4
    more = next_attempt(job(tries=900, retries=1000), FAILED, "", None, 1000.0)
    assert more is not None and isinstance(more[0].state, Queued)
    assert more[0].state.until == 1000.0 + MAX_WAIT_S


@pytest.mark.parametrize(
    ("now", "left"), [(990.0, 10.0), (1000.0, 0.0), (2000.0, 0.0), (1000.0 - 86400, 0.0)]
)
def test_a_clock_that_was_set_back_does_not_delay_the_retry(now: float, left: float) -> None:
    assert remaining_delay(msgspec.structs.replace(job(), state=Queued(until=1000.0)), now) == left
