"""A served model under the idle lease: it leaves the GPU for a job, requests wait or are answered
by the CPU, and long prompts outlive it; a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import psutil
import pytest

from gpudeck.accel.serving import tiny
from gpudeck.assistant.serve import client as served_by
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Running
from gpudeck.scheduler.protocol.snapshot import Idle
from tests.integration.deck import python
from tests.integration.endpoint import Served, serving
from tests.integration.test_eviction import alone, deck, gpu, state  # noqa: F401  fixtures
from tests.support import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("rwkv")]
WAITS = """
import sys, os, time
print([n for n in os.listdir(sys.argv[1]) if n.isdigit() and os.path.exists("/proc/" + n)])
sys.stdout.flush()
while not os.path.exists(sys.argv[2]): time.sleep(0.02)
"""
LONG = "The GPU waits. " * 120
"""600 tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny.make(folder)
    return folder


def stream(served: Served) -> Any:
    """Return a stream whose answer has begun and takes long."""
    base = f"http://127.0.0.1:{served.port}/v1"
    client = openai.OpenAI(api_key=served.token, base_url=base, max_retries=0, timeout=60)
    asked: dict[str, Any] = {"model": "tiny", "prompt": "The", "max_tokens": 900, "stream": True}
    pieces = iter(client.completions.create(**asked, extra_body={"ignore_eos": True}))
    next(pieces)
    return pieces


def test_it_leaves_for_a_job_and_its_long_prompts_come_back_from_the_disk(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    folder: Path,
    tmp_path: Path,
) -> None:
    eventually(lambda: isinstance(state(deck).use, Idle))
    asked = {"model": "tiny", "prompt": LONG, "max_tokens": 3, "temperature": 0}
    with serving(paths.home(), str(folder), "--cache-tokens", "2048", "--patience", "1") as served:
        eventually(lambda: [s.phase for s in served_by.served_models()] == ["ready"], 60.0)
        assert served_by.served_models()[0].device == "cuda" and state(deck).leased
        status, headers, first = served.ask("/v1/completions", asked)
        assert (status, headers["x-gpudeck-device"]) == (200, "cuda")
        kept = paths.home() / "prompts"
        eventually(lambda: len(list(kept.glob("*/*"))) >= 512 // 16)
        pieces = stream(served)
        go = tmp_path / "go"
        job = deck.submit(python(WAITS, gpu, go), gpus=1)
        with pytest.raises(openai.APIError, match="the GPU is needed"):
            for _ in pieces:
                pass
        eventually(lambda: isinstance(deck.job(job.id).state, Running))
        status, _, refused = served.ask("/v1/completions", asked)
        assert (status, refused["error"]["code"]) == (503, "gpu_busy")
        status, headers, told = served.ask("/v1/completions", asked, **{"X-GPUDeck-Device": "cpu"})
        assert (status, headers["x-gpudeck-device"]) == (200, "cpu")
        assert told["choices"][0]["text"] == first["choices"][0]["text"]
        go.touch()
        assert deck.wait(job.id, 30.0).status == "done"
        assert alone(gpu, job), "nobody was on the GPU when the job began"
        eventually(lambda: isinstance(state(deck).use, Idle))
        answers = []

        def answered() -> bool:
            answers.append(served.ask("/v1/completions", asked))
            return answers[-1][0] == 200

        eventually(answered, 60.0)
        _, headers, again = answers[-1]
        assert headers["x-gpudeck-device"] == "cuda"
        assert again["choices"][0]["text"] == first["choices"][0]["text"]
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= 512, "the engine that had read the prompt was gone"


def test_a_killed_server_leaves_no_engine_and_its_clients_know_at_once(
    deck: Client,  # noqa: F811
    folder: Path,
) -> None:
    with serving(paths.home(), str(folder), "--cpu", "--cache-tokens", "2048") as served:
        pieces = stream(served)
        (found,) = served_by.served_models()
        (engine,) = psutil.Process(found.pid).children()
        os.kill(found.pid, signal.SIGKILL)
        with pytest.raises((openai.APIError, httpx2.HTTPError)) as said:
            for _ in pieces:
                pass
        assert not isinstance(said.value, openai.APITimeoutError | httpx2.TimeoutException)
        eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)
        assert served_by.served_models() == (), "its socket answers nobody"
    again = served_by.start(served_by.Options(str(folder), "cpu", cache_tokens=1024), served.port)
    assert again.port == served.port, "the port is free"
    served_by.stop(again.port)


def test_a_prompt_of_10_MB_and_a_reader_that_stops_disturb_nobody(
    deck: Client,  # noqa: F811
    folder: Path,
) -> None:
    with serving(paths.home(), str(folder), "--cpu", "--cache-tokens", "4096") as served:
        long = {"model": "tiny", "prompt": "x" * 2**20}
        status, _, refused = served.ask("/v1/completions", long)
        assert status == 413 and "at most 1048576 bytes" in refused["error"]["message"]
        with suppress(ConnectionError):  # the rest is not read
            assert served.ask("/v1/completions", {**long, "prompt": "x" * 10**7})[0] == 413
        body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 900, "stream": True,
                           "ignore_eos": True, "logprobs": 5}).encode()  # fmt: skip
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            f"{served.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        stopped = []
        for _ in range(3):
            reader = socket.socket()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", served.port))
            reader.sendall(head.encode() + body)
            stopped.append(reader)
        asked = {"model": "tiny", "prompt": "y", "max_tokens": 20, "temperature": 0}
        status, _, alone_ = served.ask("/v1/completions", asked)
        assert status == 200 and alone_["choices"][0]["text"]
        for reader in stopped:
            reader.close()
        eventually(lambda: served_by.served_models()[0].figures.get("used_blocks") == 0, 60.0)
