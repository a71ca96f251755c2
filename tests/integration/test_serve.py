"""`gpudeck serve` with a real daemon and assistant, for clients of good and bad intent."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpudeck.accel.rwkv.tokenizer import END, VOCABULARY
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.serve.running_completion import MAX_REQUESTS
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import DaemonGone
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.endpoint import Served, serving
from tests.support import eventually, state_folder
from tests.unit.accel.rwkv.rwkv_models import Tensors, random_model, to_hf, write_hf

pytestmark = pytest.mark.xdist_group("rwkv")
ASKED = {
    "model": "noise-7",
    "messages": [{"role": "user", "content": "Hello"}],
    "seed": 5,
    "max_tokens": 24,
}


def noise() -> Tensors:
    """Return the weights of a small random model whose tokens are single bytes."""
    return random_model(layers=1, channels=64, vocabulary=300)


def written(folder: Path, weights: Tensors) -> Path:
    model = write_hf(folder, to_hf(weights))
    (model / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    return model


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    weights = noise()
    weights["head.weight"][END] = 0.0  # never the likeliest: a greedy text has no end
    model = written(tmp_path_factory.mktemp("models") / "noise-7", weights)
    with state_folder(tmp_path_factory.mktemp("serve") / "home") as home:
        settings.save(Settings(source="cpu", model_folder=str(model)))
        with serving(home) as found:
            yield found


def test_a_chat_answers_the_same_whole_and_streamed_with_its_usage(
    served: Served,
) -> None:
    status, headers, whole = served.ask("/v1/chat/completions", ASKED)
    assert status == 200
    assert headers["x-gpudeck-device"] == "cpu"
    assert float(headers["x-gpudeck-waited"]) >= 0
    choice = whole["choices"][0]
    assert (whole["object"], choice["finish_reason"], choice["message"]["role"]) == (
        "chat.completion",
        "length",
        "assistant",
    )
    assert whole["usage"]["completion_tokens"] == 24
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + 24
    _, headers, lines = served.ask(
        "/v1/chat/completions", {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert headers["content-type"].startswith("text/event-stream")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [
        json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")
    ]
    text = "".join(
        event["choices"][0]["delta"].get("content", "") for event in events if event["choices"]
    )
    assert text == choice["message"]["content"]
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["usage"] == whole["usage"]


def test_a_completion_ends_at_a_stop_text(served: Served) -> None:
    plain = {"model": "noise-7", "prompt": "Once", "temperature": 0, "max_tokens": 12}
    _, _, whole = served.ask("/v1/completions", plain)
    text = whole["choices"][0]["text"]
    stop = text[4:6]
    _, _, stopped = served.ask("/v1/completions", {**plain, "stop": [stop, "never said"]})
    assert stopped["choices"][0]["text"] == text[: text.index(stop)]
    assert stopped["choices"][0]["finish_reason"] == "stop"


@pytest.fixture
def silent(served: Served, tmp_path: Path) -> Iterator[str]:
    """Use a model that ends its text at once."""
    weights = noise()
    weights["head.weight"].zero_()  # all are as likely, and a greedy text takes the first of them
    with Client(start=False) as daemon:
        before = daemon.snapshot().settings.model_folder
        daemon.configure(model_folder=str(written(tmp_path / "silent-7", weights)))
        yield "silent-7"
        daemon.configure(model_folder=before)


def said(served: Served, path: str, asked: dict[str, Any]) -> tuple[str, str]:
    """Return the text and why it ended, which must be the same whole and streamed."""
    _, _, answer = served.ask(path, asked)
    _, _, lines = served.ask(path, {**asked, "stream": True})
    assert lines[-2:] == ["data: [DONE]", ""]
    pieces = [
        json.loads(line.removeprefix("data: "))["choices"][0]
        for line in lines
        if line.startswith("data: {")
    ]
    whole = answer["choices"][0]
    text, reason = _text(whole), whole["finish_reason"]
    assert ("".join(map(_text, pieces)), pieces[-1]["finish_reason"]) == (text, reason)
    return text, reason


def _text(choice: dict[str, Any]) -> str:
    """Return the text of a choice in any of the four shapes."""
    return (
        choice["text"]
        if "text" in choice
        else (choice.get("message") or choice["delta"]).get("content", "")
    )


BOTH = pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "Once"}),
        ("/v1/chat/completions", {"messages": ASKED["messages"]}),
    ],
    ids=["completion", "chat"],
)


@BOTH
def test_a_stop_text_at_the_beginning_ends_the_answer(
    served: Served, path: str, asked: dict[str, Any]
) -> None:
    greedy = {"model": "noise-7", "temperature": 0, "max_tokens": 12, **asked}
    text, _ = said(served, path, greedy)
    assert said(served, path, {**greedy, "stop": text[0]}) == ("", "stop")


@BOTH
def test_a_model_without_text_gives_an_empty_answer(
    served: Served, silent: str, path: str, asked: dict[str, Any]
) -> None:
    assert said(served, path, {"model": silent, "temperature": 0, "max_tokens": 12, **asked}) == (
        "",
        "stop",
    )


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_refused_in_a_line(
    served: Served, path: str, asked: dict[str, Any], stream: bool
) -> None:
    # an answer that fits ends soon, at a frequent letter
    most = {"max_tokens": 2**20, "stream": stream, "stop": ["e", "a", " "]}
    status, _, error = served.ask(path, {"model": "noise-7", **asked, **most})
    assert status == 200 or error["error"]["code"] == "context_length_exceeded"


SCHEMA = {
    "type": "object",
    "properties": {"gpu": {"enum": [0, 1]}, "hot": {"type": "boolean"}},
    "required": ["gpu", "hot"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_the_schema_that_was_asked_for(served: Served, stream: bool) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "reading", "schema": SCHEMA}}
    asked = {**ASKED, "max_tokens": 400, "response_format": schema, "stream": stream}
    _, _, answer = served.ask("/v1/chat/completions", asked)
    if stream:
        events = [json.loads(line[6:]) for line in answer if line.startswith("data: {")]
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    else:
        text = answer["choices"][0]["message"]["content"]
    made = json.loads(text)
    assert set(made) == {"gpu", "hot"} and made["gpu"] in (0, 1) and made["hot"] in (True, False)


def test_an_answer_that_is_cut_off_begins_an_object_at_least(served: Served) -> None:
    asked = {**ASKED, "max_tokens": 9, "response_format": {"type": "json_object"}}
    _, _, answer = served.ask("/v1/chat/completions", asked)
    assert answer["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_is_called_with_its_arguments(served: Served, stream: bool) -> None:
    function = {"name": "read_gpu", "parameters": SCHEMA}
    tools = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    asked = {**ASKED, "max_tokens": 400, "stream": stream, **tools}
    _, _, answer = served.ask("/v1/chat/completions", asked)
    if stream:
        events = [json.loads(line[6:]) for line in answer if line.startswith("data: {")]
        choice = events[-1]["choices"][0]
        (call,) = choice["delta"]["tool_calls"]
    else:
        choice = answer["choices"][0]
        (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and call["function"]["name"] == "read_gpu"
    assert set(json.loads(call["function"]["arguments"])) == {"gpu", "hot"}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "71"}
    messages = [*ASKED["messages"], called, result]
    _, _, answer = served.ask("/v1/chat/completions", {**ASKED, "messages": messages})
    assert answer["usage"]["completion_tokens"] == 24


def test_the_probabilities_of_tokens_are_told(served: Served) -> None:
    asked = {**ASKED, "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    _, _, answer = served.ask("/v1/chat/completions", asked)
    told = answer["choices"][0]["logprobs"]["content"]
    assert len(told) == 3 and all(each["logprob"] <= 0 for each in told)
    assert all(len(each["top_logprobs"]) == 2 for each in told)


def test_a_prompt_that_begins_alike_is_not_read_twice(served: Served) -> None:
    asked = {"model": "noise-7", "prompt": "Once upon a time. " * 20, "max_tokens": 2}
    served.ask("/v1/completions", asked)
    _, _, again = served.ask("/v1/completions", asked)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 320


def test_models_are_listed_and_others_do_not_exist(served: Served) -> None:
    _, _, found = served.ask("/v1/models")
    assert [model["id"] for model in found["data"]] == ["noise-7"]
    assert served.ask("/v1/models/noise-7")[0] == 200
    status, _, error = served.ask("/v1/chat/completions", {**ASKED, "model": "gpt-4"})
    assert (status, error["error"]["code"], error["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"temperature": 3}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "image_url",
        ),
        ({"stop": [""]}, "stop"),
        ({"seed": 2**70}, "seed"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"50": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "regex", "regex": "("}}, "regex"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0]"),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "tool_calls",
        ),
    ],
)
def test_unsupported_options_are_refused_by_name(
    served: Served, changes: dict[str, Any], named: str
) -> None:
    status, _, error = served.ask("/v1/chat/completions", {**ASKED, **changes})
    assert status == 400
    assert error["error"]["type"] == "invalid_request_error"
    assert named in error["error"]["message"]


def test_notes_of_a_client_are_accepted_and_named(served: Served) -> None:
    notes = {"metadata": {"run": "7"}, "store": True, "service_tier": "auto"}
    status, headers, _ = served.ask("/v1/chat/completions", {**ASKED, **notes})
    assert status == 200
    assert headers["x-gpudeck-ignored"] == "store, metadata"
    for asked in (ASKED, {**ASKED, "store": False}):
        status, headers, _ = served.ask("/v1/chat/completions", asked)
        assert status == 200 and "x-gpudeck-ignored" not in headers


def test_embeddings_are_refused_with_the_reason(served: Served) -> None:
    status, _, error = served.ask("/v1/embeddings", {"model": "x", "input": "text"})
    assert status == 404 and "embeddings are not offered" in error["error"]["message"]


SAME: tuple[dict[str, Any], ...] = (
    {"n": 1},
    {"logprobs": False},
    {"presence_penalty": 0, "frequency_penalty": 0.0},
    {"logit_bias": {}},
    {"store": False, "service_tier": "auto"},
    {"stop": []},
    dict.fromkeys(
        (
            "n",
            "logprobs",
            "presence_penalty",
            "logit_bias",
            "store",
            "service_tier",
            "metadata",
            "stop",
            "user",
        )
    ),
)


@pytest.mark.parametrize(
    "changes",
    [
        *SAME,
        {"response_format": {"type": "text"}},
        {"top_logprobs": 0, "modalities": ["text"], "tool_choice": "none"},
        dict.fromkeys(
            (
                "response_format",
                "modalities",
                "tools",
                "tool_choice",
                "functions",
                "function_call",
                "audio",
                "prediction",
            )
        ),
    ],
    ids=" ".join,
)
def test_options_that_change_nothing_in_a_chat_are_accepted(
    served: Served, changes: dict[str, Any]
) -> None:
    assert (
        served.ask("/v1/chat/completions", {**ASKED, **changes})[2]["choices"]
        == served.ask("/v1/chat/completions", ASKED)[2]["choices"]
    )


@pytest.mark.parametrize(
    "changes", [*SAME, {"echo": False, "best_of": 1, "suffix": None}], ids=" ".join
)
def test_options_that_change_nothing_in_a_completion_are_accepted(
    served: Served, changes: dict[str, Any]
) -> None:
    asked = {"model": "noise-7", "prompt": "Once", "seed": 5}
    assert (
        served.ask("/v1/completions", {**asked, **changes})[2]["choices"]
        == served.ask("/v1/completions", asked)[2]["choices"]
    )


def test_messages_of_the_assistant_can_be_sent_back(
    served: Served,
) -> None:
    def told(said: dict[str, Any]) -> Any:
        return served.ask(
            "/v1/chat/completions",
            {**ASKED, "messages": [*ASKED["messages"], said, *ASKED["messages"]]},
        )[2]["choices"]

    silent = {"role": "assistant", "content": None}
    assert told({**silent, "tool_calls": None, "function_call": None, "audio": None}) == told(
        {**silent, "content": ""}
    )
    message = served.ask("/v1/chat/completions", ASKED)[2]["choices"][0]["message"]
    assert told(message) == told({"role": "assistant", "content": message["content"]})


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[[" * 50_000, b'{"model": "\xff"}', b"null", b'{"model": 1e999}']
)
def test_invalid_bodies_are_refused(served: Served, body: bytes) -> None:
    status, _, error = served.ask("/v1/chat/completions", body)
    assert (status, error["error"]["type"]) == (400, "invalid_request_error")


def test_a_body_that_is_too_long_is_not_read_to_its_end(served: Served) -> None:
    status, _, error = served.ask("/v1/chat/completions", b"x" * 3 * 2**20)
    assert (status, error["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic {token}", "Bearer {token}x", "Bearer \xe9"]
)
def test_requests_without_the_token_are_refused(served: Served, given: str) -> None:
    status, headers, error = served.ask(
        "/v1/models", Authorization=given.format(token=served.token)
    )
    assert (status, error["error"]["code"]) == (401, "invalid_api_key")
    assert headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example:80", ""],
)
def test_requests_for_other_hosts_are_refused(served: Served, host: str) -> None:
    assert served.ask("/v1/models", Host=host)[0] == 403
    assert served.ask("/v1/models", Host=f"localhost:{served.port}")[0] == 200


def test_it_listens_on_loopback_and_its_token_is_private(served: Served) -> None:
    mine = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    assert re.findall(rf"\s(\S+):{served.port:04X} \S+ 0A ", mine) == ["0100007F"]
    assert (served.home / "serve.token").stat().st_mode & 0o777 == 0o600


def test_other_addresses_and_methods_do_not_exist(served: Served) -> None:
    assert served.ask("/")[2]["error"]["code"] == "unknown_url"
    assert served.ask("/v1/chat/completions")[0] == 405


def raw(served: Served, body: dict[str, Any]) -> bytes:
    """Return the bytes of a whole request."""
    sent = json.dumps(body).encode()
    head = [
        "POST /v1/completions HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {served.token}",
        f"Content-Length: {len(sent)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + sent


def answering() -> bool:
    """Return whether the assistant is answering; the first request starts it."""
    try:
        return Assistant(start=False).status().answering > 0
    except DaemonGone:
        return False


def test_a_client_that_leaves_stops_the_model(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as nonsense:
        nonsense.sendall(b"\x16\x03\x01\x02\x00 no HTTP\r\n\r\n")
        assert b"400" in nonsense.recv(100)
    with socket.create_connection(("127.0.0.1", served.port)) as leaves:
        leaves.sendall(
            raw(served, {"model": "noise-7", "prompt": "x", "max_tokens": 8192, "temperature": 0})
        )
        eventually(answering)
    eventually(lambda: not answering())
    assert served.ask("/v1/chat/completions", {**ASKED, "max_tokens": 2})[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_blocks_no_other_request_and_leaving_frees_a_place(
    served: Served, stream: bool
) -> None:
    """There are more requests than asyncio has threads on a machine with two cores."""
    plain = {"model": "noise-7", "prompt": "x", "max_tokens": 1}
    served.ask("/v1/chat/completions", {**ASKED, "max_tokens": 2})  # the assistant runs now
    asked = raw(
        served,
        {"model": "noise-7", "prompt": "x", "max_tokens": 8192, "temperature": 0, "stream": stream},
    )
    with ExitStack() as line:
        for _ in range(MAX_REQUESTS):
            line.enter_context(socket.create_connection(("127.0.0.1", served.port))).sendall(asked)
        eventually(lambda: Assistant(start=False).status().answering == MAX_REQUESTS)
        assert served.ask("/v1/completions", plain)[0] == 429
        assert served.ask("/v1/models")[0] == 200
        assert "busy" in Assistant().ask("is it idle?").text, "a person is answered all the same"
    eventually(lambda: not Assistant(start=False).status().answering)
    assert served.ask("/v1/chat/completions", {**ASKED, "max_tokens": 2})[0] == 200


@pytest.mark.slow
def test_too_many_requests_are_refused_and_slow_ones_cut_off(served: Served) -> None:
    idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
    for connection in idle:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: loc")
    slow_body = socket.create_connection(("127.0.0.1", served.port), timeout=30)
    slow_body.sendall(raw(served, {"model": "noise-7", "prompt": "x"})[:-1])
    began = time.monotonic()
    codes = f"""
import concurrent.futures, http.client, json
def ask(_):
    c = http.client.HTTPConnection("127.0.0.1", {served.port}, timeout=100)
    body = {{"model": "noise-7", "prompt": "x", "max_tokens": 400, "temperature": 0}}
    c.request("POST", "/v1/completions", json.dumps(body),
              {{"Authorization": "Bearer {served.token}"}})
    return c.getresponse().status
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    print(sorted(pool.map(ask, range(16))))
"""
    told = json.loads(
        subprocess.run(
            [sys.executable, "-c", codes], capture_output=True, text=True, check=True, timeout=100
        ).stdout
    )
    assert set(told) == {200, 429}
    assert told.count(200) >= 8
    for connection in idle:
        connection.settimeout(30)
        try:
            assert connection.recv(100) == b""
        except ConnectionResetError:
            pass
        connection.close()
    assert slow_body.recv(100).startswith(b"HTTP/1.1 408 ")
    slow_body.close()
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_the_openai_client_works_with_it(served: Served) -> None:
    code = f"""
from openai import OpenAI, AuthenticationError, NotFoundError, BadRequestError
url = "http://127.0.0.1:{served.port}/v1"
client = OpenAI(base_url=url, api_key={served.token!r}, max_retries=0)
assert [m.id for m in client.models.list()] == ["noise-7"]
said = [{{"role": "system", "content": "Be brief."}}, {{"role": "user", "content": "Hi"}}]
ask = dict(model="noise-7", messages=said, seed=1, max_tokens=20)
whole = client.chat.completions.create(**ask)
stream = client.chat.completions.create(**ask, stream=True)
pieces = [event.choices[0].delta.content or "" for event in stream]
assert "".join(pieces) == whole.choices[0].message.content
assert whole.usage.completion_tokens == 20
raw = client.chat.completions.with_raw_response.create(**ask)
assert raw.headers["x-gpudeck-device"] == "cpu"
short = client.completions.create(model="noise-7", prompt="x", max_tokens=3)
assert short.usage.completion_tokens <= 3
for wrong, change in ((NotFoundError, {{"model": "other"}}), (BadRequestError, {{"n": 3}})):
    try:
        client.chat.completions.create(**{{**ask, **change}})
    except wrong:
        continue
    raise SystemExit(f"no {{wrong}}")
try:
    OpenAI(base_url=client.base_url, api_key="other", max_retries=0).models.list()
except AuthenticationError:
    print("all well")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout == "all well\n", done.stderr


@pytest.mark.slow
def test_the_token_is_shown_only_when_it_is_created(tmp_path: Path) -> None:
    with state_folder(tmp_path / "home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        first = serving(home)
        with first as found:
            assert found.token in first.said
            status, _, error = found.ask("/v1/completions", {"model": "x", "prompt": "x"})
            assert (status, error["error"]["code"]) == (404, "model_not_found")
            assert "none is in use" in error["error"]["message"]
        second, third = serving(home), serving(home, "--new-token")
        with second as found:
            assert found.token not in second.said
        with third as other:
            assert other.token in third.said
            assert other.token != found.token
