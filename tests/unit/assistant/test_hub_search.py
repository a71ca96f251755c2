"""The hub is searched for models that can run here; interrupted downloads are found again."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpudeck.app.models.hub_fit import hub_fit
from gpudeck.assistant.library import hub_search
from gpudeck.assistant.library.hub_search import HubModel, search_hub
from gpudeck.assistant.library.unfinished import Unfinished, unfinished_downloads
from gpudeck.scheduler.protocol.errors import UserError
from tests.gui import snapshots

QWEN = {
    "id": "Qwen/Qwen3-8B",
    "downloads": 900,
    "gated": False,
    "config": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    "safetensors": {"parameters": {"BF16": 8_000_000_000, "F32": 1000}, "total": 8_000_001_000},
}
LISTED = [
    QWEN,
    {**QWEN, "id": "ada/llama", "gated": "manual", "config": {"model_type": "llama"}},
    {**QWEN, "id": "ada/picture", "config": {"model_type": "clip"}},
    {**QWEN, "id": "ada/unknown-size", "safetensors": None},
    {"id": "ada/bare"},
]


class Hub:
    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.reply = json.dumps(LISTED).encode()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            assert address.path == "/api/models"
            made.asked.append(parse_qs(address.query))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(made.reply)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield made
        server.shutdown()
        thread.join()


def test_models_of_served_families_are_found_with_their_sizes(hub: Hub) -> None:
    found = search_hub("qwen & more")
    assert hub.asked[0]["search"] == ["qwen & more"]
    size = 16_000_004_000
    assert found == (
        HubModel("Qwen/Qwen3-8B", 8_000_001_000, size, 900, gated=False),
        HubModel("ada/llama", 8_000_001_000, size, 900, gated=True),
    )


@pytest.mark.parametrize(
    "reply",
    [
        b"<html>",
        b"{}",
        b'[{"id": 5}]',
        b"[" * (2**22 + 1),
        b'[{"id": "a/b", "deep": ' + b"[" * 10**5 + b"]" * 10**5 + b"}]",
        b'[{"id": "a/b", "downloads": 1' + b"0" * 400 + b"}]",
        b'[{"id": "a/b", "safetensors": {"parameters": {"BF16": -8000000000}}}]',
    ],
    ids=["no JSON", "no list", "no name", "too long", "deep", "many downloads", "negative"],
)
def test_a_reply_that_cannot_be_read_is_refused(hub: Hub, reply: bytes) -> None:
    hub.reply = reply
    with pytest.raises(UserError, match="cannot be read"):
        search_hub("x")


def test_a_model_whose_name_is_no_name_is_not_offered(hub: Hub) -> None:
    names = ["a/b\x1b[2J", "<b>a</b>/c", "../../etc", "a" * 10**5, "a/b"]
    hub.reply = json.dumps([{**QWEN, "id": name} for name in names]).encode()
    assert [model.name for model in search_hub("x")] == ["a/b"]


@pytest.mark.parametrize(
    ("sent", "told"), [(b"nonsense without end", "cannot be searched"), (b"", "took over 0.5 s")]
)
def test_a_hub_that_speaks_no_http_or_sends_byte_by_byte_is_left(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, told: str
) -> None:
    monkeypatch.setattr(hub_search, "PATIENCE_S", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(10.0)

    def serve() -> None:
        client, _ = listening.accept()
        with client, suppress(OSError):
            client.sendall(sent or b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(0 if sent else 600):
                client.sendall(b"[")
                time.sleep(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(UserError, match=told):
        search_hub("x")
    listening.close()
    thread.join()


def test_a_hub_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9 cannot be searched"):
        search_hub("x")
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(UserError, match="no address"):
        search_hub("x")


@pytest.mark.parametrize(
    ("gib", "fits", "text"),
    [
        (10, True, "NVIDIA H100 80GB HBM3"),
        (100, True, "with int8 weights"),
        (200, True, "with int4 weights"),
        (400, False, "too large"),
    ],
)
def test_a_model_fits_as_stored_or_with_smaller_weights(gib: int, fits: bool, text: str) -> None:
    model = HubModel("a/b", 10**9, gib * 2**30, 1, gated=False)
    found = hub_fit(model, snapshots.gpu_snapshot(3), 0)
    assert found.fits == fits
    assert text in found.text
    assert hub_fit(model, snapshots.cpu_snapshot(), 8 * 2**40).text == "fits the CPU"
    assert hub_fit(model, None, 0).text == "", "nothing is known yet"


def test_interrupted_downloads_are_found(home: Path) -> None:
    assert unfinished_downloads() == ()
    folder = home / "models" / ".ada--my--model.new"
    folder.mkdir(parents=True)
    assert unfinished_downloads() == (), "nothing came"
    (folder / ".model.safetensors.0123456789abcdef.partial").write_bytes(b"x" * 5000)
    (home / "models" / "ada--whole").mkdir()
    assert unfinished_downloads() == (Unfinished("ada/my--model", 5000),)
