"""The endpoint's server and clients that misbehave."""

from __future__ import annotations

import socket
import subprocess
import sys

ENDLESS = """
import asyncio
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from gpudeck.assistant.serve import server

async def pieces():
    try:
        while True:
            await asyncio.sleep(0)  # as for the model's next word
            yield bytes(2**16)
    finally:
        print("ended", flush=True)

server.STALLED_S = 0.2
with server.listen(0) as sock:
    print(sock.getsockname()[1], flush=True)
    app = Starlette(routes=[Route("/", lambda request: StreamingResponse(pieces()))])
    server.serve(app, sock, print)
"""


def test_a_stream_to_a_client_that_never_reads_is_ended() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                assert process.stdout.readline() == "ended\n"
            finally:
                process.kill()
