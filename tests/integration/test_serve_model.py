"""`gpudeck serve FOLDER` with a real engine process, by OpenAI's own client and by hostile ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest

from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.memory import BLOCK
from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.host_protocol import Chunk
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.inference import engine_protocol as m
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.serve import client as client_
from gpudeck.assistant.serve.engine_process import EngineProcess, Replies
from gpudeck.assistant.serve.model_requests import Message, ModelChat
from gpudeck.assistant.serve.served_model import ModelRun
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.endpoint import Served, serving
from tests.integration.shell import Shell
from tests.support import eventually, in_english, state_folder
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf

pytestmark = pytest.mark.xdist_group("serve_model")
CHAT: list[Any] = [{"role": "user", "content": "How full is the queue?"}]
USER_FIRST = """\
{% if messages[0].role != "user" %}{{ raise_exception("the user begins") }}{% endif %}"""
"""A check that the templates of many models make."""
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "free_memory",
        "parameters": {
            "type": "object",
            "properties": {"gpu": {"type": "integer", "minimum": 0, "maximum": 7}},
            "required": ["gpu"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny.make(folder)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with state_folder(tmp_path_factory.mktemp("serve") / "home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with serving(home, str(folder), "--cpu", "--cache-tokens", "4096") as found:
            yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[openai.OpenAI]:
    base = f"http://127.0.0.1:{served.port}/v1"
    with openai.OpenAI(api_key=served.token, base_url=base, max_retries=0, timeout=60) as made:
        yield made


def test_openais_client_gets_the_same_text_whole_and_streamed(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    asked: dict[str, Any] = {"model": "tiny", "messages": CHAT, "seed": 5, "max_tokens": 20}
    whole = client.chat.completions.create(**asked)
    pieces = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content
    assert whole.usage is not None and pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert pieces[-1].usage.prompt_tokens_details.cached_tokens > 0  # the second time
    once = client.completions.create(model="tiny", prompt="The GPU", max_tokens=5, temperature=0)
    again = client.completions.create(model="tiny", prompt="The GPU", max_tokens=5, temperature=0)
    assert once.choices[0].text == again.choices[0].text


def test_an_answer_follows_its_format(client: openai.OpenAI) -> None:
    schema = TOOL["function"]["parameters"]
    format_: Any = {"type": "json_schema", "json_schema": {"name": "gpu", "schema": schema}}
    found = client.chat.completions.create(model="tiny", messages=CHAT, response_format=format_)
    assert 0 <= json.loads(found.choices[0].message.content or "")["gpu"] <= 7


@pytest.mark.parametrize("stream", [False, True])
def test_a_function_is_called(client: openai.OpenAI, stream: bool) -> None:
    asked: Any = {"model": "tiny", "messages": CHAT, "tools": [TOOL], "tool_choice": "required"}
    made = client.chat.completions.create(**asked, stream=stream)
    if stream:
        last = [piece for piece in made if piece.choices][-1]
        calls, reason = last.choices[0].delta.tool_calls, last.choices[0].finish_reason
    else:
        calls, reason = made.choices[0].message.tool_calls, made.choices[0].finish_reason
    assert reason == "tool_calls" and len(calls) == 1
    assert calls[0].function.name == "free_memory"
    assert 0 <= json.loads(calls[0].function.arguments)["gpu"] <= 7


def test_probabilities_come_with_the_text(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
    )
    told = found.choices[0].logprobs
    assert told is not None and told.content is not None and len(told.content) == 4
    for token in told.content:
        assert token.top_logprobs[0].logprob == token.logprob < 0 and len(token.top_logprobs) == 2


def _called(arguments: str) -> dict[str, Any]:
    """Return a message that the model is said to have written: a call of a function."""
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _tool(parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def _nested(levels: int) -> Any:
    made: Any = {}
    for _ in range(levels):
        made = {"a": made}
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "other"}, "does not exist here"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5000}, ""),  # as many as fit
        ({"temperature": 9}, "temperature"),
        ({"temperature": 1, "top_p": 1e-12}, "top_p"),
        ({"messages": [_called("[" * 900 + "]" * 900), *CHAT]}, ""),
        ({"messages": [_called("[" * 99_999), *CHAT]}, ""),
        ({"messages": [_called("5"), *CHAT]}, ""),
        ({"messages": [_called('{"a": 1' + "0" * 4000 + "}"), *CHAT]}, ""),
        ({"messages": [_called('{"a": "\\ud800"}'), *CHAT]}, ""),
        ({"tools": [_tool(_nested(900))]}, "nested more than 128 levels"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": _nested(900)}}},
            "nested more than 128 levels",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "regex", "regex": "(("}}, "cannot be used"),
        ({"messages": [{"role": "user", "content": "x" * 500_000}]}, "at most"),
        ({"n": 2}, "n"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_line(
    served: Served, change: dict[str, Any], message: str
) -> None:
    asked = {"model": "tiny", "messages": CHAT, "max_tokens": 4, "temperature": 0, **change}
    status, _, body = served.ask("/v1/chat/completions", asked)
    if not message:
        assert status == 200
        return
    assert status in (400, 404)
    assert message in body["error"]["message"] and "\n" not in body["error"]["message"]


def test_a_hundred_connections_are_served(served: Served) -> None:
    open_ones = [HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(100)]
    for each in open_ones:
        each.request("GET", "/v1/models", headers={"Authorization": f"Bearer {served.token}"})
    assert [each.getresponse().status for each in open_ones] == [200] * 100
    for each in open_ones:
        each.close()


def test_20_clients_at_once_get_the_answers_they_get_alone(client: openai.OpenAI) -> None:
    def ask(number: int) -> str:
        found = client.completions.create(
            model="tiny", prompt=f"{number} GPU", max_tokens=12, seed=number
        )
        return found.choices[0].text

    alone = [ask(number) for number in range(20)]
    together: dict[int, str] = {}
    threads = [threading.Thread(target=lambda n=n: together.update({n: ask(n)})) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[number] for number in range(20)] == alone


@pytest.mark.slow
def test_an_answer_that_nobody_reads_pauses_and_others_go_on(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Only a bounded part of an answer is written ahead of its reader."""

    async def run() -> None:
        async with asyncio.timeout(120):
            await read_slowly()

    async def read_slowly() -> None:
        process = EngineProcess(Options(str(folder), "cpu", cache_tokens=4096, prompts_bytes=0))
        await process.ensure()

        async def read(replies: Replies) -> list[Any]:
            found = [await replies.get()]
            while not isinstance(found[-1], m.Done):
                found.append(await replies.get())
            return found

        greedy = Sampling(temperature=0, logprobs=0)

        def ask(prompt: str, limit: int) -> Replies:
            number, replies = process.number()
            wanted = Wanted(greedy, limit, prompt=prompt, ignore_end=True)
            process.send(m.Submit(number, wanted))
            return replies

        slow = ask("The queue", 1000)
        while (figures := await process.figures()).get("waiting") != 1:
            await asyncio.sleep(0.05)
        assert figures["running"] == 0, "it waits for its reader"
        assert slow._queue.qsize() <= m.MOST_SENT
        other = await read(ask("The GPU", 700))
        assert sum(len(event.tokens) for event in other[:-1]) == 700
        whole = await read(slow)
        assert sum(len(event.tokens) for event in whole[:-1]) == 1000
        await process.stop()

    with state_folder(tmp_path_factory.mktemp("slow") / "home"):
        asyncio.run(run())


def test_a_client_that_leaves_frees_its_blocks(served: Served, folder: Path) -> None:
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 1000, "stream": True,
                       "ignore_eos": True}).encode()  # fmt: skip
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        f"{served.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port)) as gone:
        gone.sendall(head.encode() + body)
        assert b"200 OK" in gone.recv(4096)
    status, _, _ = served.ask(
        "/v1/completions", {"model": "tiny", "prompt": "y", "max_tokens": 900, "temperature": 0}
    )
    assert status == 200


def engine_of(served: Served) -> psutil.Process:
    def find() -> list[psutil.Process]:
        return [
            p
            for child in psutil.Process().children()
            for p in child.children()
            if "gpudeck.assistant.inference" in p.cmdline()
        ]

    eventually(lambda: bool(find()))
    return find()[-1]


def test_an_engine_that_is_killed_in_mid_stream_says_so_and_is_started_again(
    served: Served, client: openai.OpenAI
) -> None:
    engine = engine_of(served).pid  # found first, since the answer may end meanwhile
    stream = client.completions.create(
        model="tiny", prompt="The", max_tokens=1000, stream=True, extra_body={"ignore_eos": True}
    )
    pieces = iter(stream)
    next(pieces)
    os.kill(engine, signal.SIGKILL)
    with pytest.raises(openai.APIError, match="engine ended"):
        for _ in pieces:
            pass
    # three drawn tokens may be bytes of a character that is not complete, and then there is no text
    again = client.completions.create(
        model="tiny", prompt="The", max_tokens=3, extra_body={"ignore_eos": True}
    )
    assert again.usage is not None and again.usage.completion_tokens == 3
    assert engine_of(served).pid != engine


def test_a_folder_that_is_no_model_is_refused(shared_home: Path, sh: Shell, tmp_path: Path) -> None:
    assert "no config.json" in sh("serve", str(tmp_path), status=1)
    assert f"no folder {tmp_path / 'gone'}." in sh("serve", str(tmp_path / "gone"), status=1)
    odd = tmp_path / "odd"
    tiny.make(odd)
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    assert "the family 'mamba', which is not supported" in sh("serve", str(odd), status=1)
    (tmp_path / "model.gguf").touch()
    assert "in the format GGUF" in sh("serve", str(tmp_path / "model.gguf"), status=1)
    assert "in the format GGUF" in sh("bench", "serve", str(tmp_path / "model.gguf"), status=1)


def test_rwkv_7_is_served_by_the_same_engine(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = write_hf(tmp_path / "goose", to_hf(random_model(2, 64, 65536)))
    (model / vocabulary_file().name).write_bytes(vocabulary_file().read_bytes())
    with state_folder(tmp_path_factory.mktemp("goose") / "home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with serving(home, str(model), "--cpu") as served:
            asked = {"model": "goose", "messages": CHAT * 20, "max_tokens": 8, "temperature": 0}
            _, _, first = served.ask("/v1/chat/completions", asked)
            _, _, again = served.ask("/v1/chat/completions", asked)
            regex = {"type": "regex", "regex": "[a-c]{5}"}
            _, _, shaped = served.ask("/v1/chat/completions", {**asked, "response_format": regex})
    assert again["choices"] == first["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64
    text = shaped["choices"][0]["message"]["content"]
    assert len(text) == 5 and set(text) <= set("abc")


def test_a_model_that_cannot_be_loaded_says_why(
    folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny.make(tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "intermediate_size": 100}))
    with state_folder(tmp_path_factory.mktemp("odd") / "home") as home:
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with serving(home, str(tmp_path / "odd"), "--cpu") as served:
            status, _, body = served.ask("/v1/completions", {"model": "odd", "prompt": "x"})
    assert status == 503 and "but config.json means" in body["error"]["message"]


def test_a_job_serves_on_the_device_that_the_queue_gave_it(
    folder: Path, alone: Shell, cpu_home: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "job 1: serves tiny" in alone("serve", str(folder), "--as", "job", "--port", str(port))
    eventually((cpu_home / "serve.token").exists)
    served = Served(port, (cpu_home / "serve.token").read_text(), cpu_home)

    def answers() -> bool:
        try:
            asked = {"model": "tiny", "prompt": "x", "max_tokens": 3}
            status, headers, _ = served.ask("/v1/completions", asked)
        except ConnectionError:
            return False
        return status == 200 and headers["x-gpudeck-device"] == "cpu"

    eventually(answers)
    alone("cancel", "1")
    eventually(lambda: "cancelled" in alone("jobs", "1"))


@pytest.mark.slow
def test_the_load_test_measures_and_draws(
    shared_home: Path, sh: Shell, folder: Path, tmp_path: Path
) -> None:
    drawn = tmp_path / "load.svg"
    asked = ("--cpu", "--streams", "1,3", "--words", "8", "--tokens", "5", "--chart", str(drawn),
             "--cache", "fp8")  # fmt: skip
    found = json.loads(sh("bench", "serve", str(folder), *asked, "--json"))
    assert [each["streams"] for each in found["measured"]] == [1, 3]
    for each in found["measured"]:
        assert each["throughput"] > 0 and each["ttft"] == sorted(each["ttft"])
        assert each["requests"] == 2 * each["streams"] and min(each["tpot"]) > 0
    assert found["cache"] == "fp8" and 0 < found["cache_error"]["divergence"] < 0.1
    text = drawn.read_text()
    assert text.startswith("<svg") and text.count("<circle") == 4 and "P99" in text
    assert drawn.stat().st_mode & 0o077 == 0


def test_the_user_sees_a_served_model_chats_with_it_and_stops_it(
    folder: Path, alone: Shell, cpu_home: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(folder, tmp_path / "tiny"))
    names = json.loads((folder / "tokenizer_config.json").read_text())
    names["chat_template"] = f"{USER_FIRST}{names['chat_template']}"
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    options = Options(str(folder), "cpu", cache="int8", cache_tokens=2048)
    started = client_.start(options, 0)
    sockets = client_.sockets()
    assert [path.stat().st_mode & 0o777 for path in sockets] == [0o600]

    def served() -> Any:
        return client_.served_models()[0]

    eventually(lambda: served().phase == "ready")
    again = client_.start(options, started.port)
    assert again.port != started.port, "the second one has a place of its own"
    client_.stop(again.port)
    eventually(lambda: len(client_.served_models()) == 1)
    found = served()
    assert (found.name, found.folder, found.port) == ("tiny", str(folder), started.port)
    assert (found.device, found.weights, found.cache_tokens) == ("cpu", "float32", 2048)
    assert found.cache == "int8" and found.cache_error is not None
    assert 0 < found.cache_error.divergence < 0.1
    assert found.figures["blocks"] == 128 and found.figures["running"] == 0
    pieces: list[str] = []

    def take(event: Any) -> None:
        if isinstance(event, Chunk):
            pieces.append(event.text)

    question = "How full is the queue? " * 4
    said = client_.ServedChat().ask(found, (question,), take)
    assert said.tokens > 0 and said.device == "cpu"
    # The same question again, with another turn. Its blocks are in the cache whatever was drawn as
    # the first answer, which may be as short as one token.
    client_.ServedChat().ask(found, (question, "It is empty.", "And the GPU?"), take)
    assert "".join(pieces)
    figures = served().figures
    assert figures["cached_tokens"] >= 2 * BLOCK and figures["running"] == 0
    long = ("How full is the queue? " * 90, "It is empty.", "And the GPU?")
    assert client_.ServedChat().ask(found, long, take).left_out == 2
    assert "tiny" in alone("models", "served") and "ready" in alone("models", "served")
    assert json.loads(alone("models", "served", "--json"))[0]["port"] == started.port
    assert "was stopped" in alone("models", "stop", "tiny")
    assert client_.served_models() == () and client_.sockets() == []
    assert "No model is served" in alone("models", "served")
    eventually(lambda: psutil.Process(found.pid).status() == psutil.STATUS_ZOMBIE)  # of ours


def test_a_served_model_reads_what_the_encoder_cannot(
    folder: Path, cpu_home: Path, tmp_path: Path
) -> None:
    """Its weights are random, so its JSON means anything; the answer says who read the request."""
    folder = Path(shutil.copytree(folder, tmp_path / "tiny"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    found = client_.start(Options(str(folder), "cpu", cache_tokens=4096), 0)
    eventually(lambda: client_.served_models()[0].phase == "ready")
    answer = Assistant().ask("3 above 4")
    assert answer.routed == "model tiny" or "The model tiny was asked, too" in answer.text
    client_.stop(found.port)


def test_loading_is_no_wait_for_a_gpu(folder: Path, cpu_home: Path) -> None:
    """Only a GPU that others use ends the patience of a request."""

    async def ask() -> str:
        process = EngineProcess(Options(str(folder), "cpu", cache_tokens=2048))
        asked = ModelChat(model="tiny", messages=[Message("user", "Hello")], max_tokens=3)
        try:
            async with asyncio.timeout(60), ModelRun(asked, process) as run:
                await run.first_text(0.0)
                while await run.next_event() is not None:
                    pass
                return run.device
        finally:
            await process.stop()

    assert asyncio.run(ask()) == "cpu"


@pytest.mark.slow
def test_a_chat_is_cancelled_and_an_unusable_model_says_why(
    folder: Path, alone: Shell, cpu_home: Path, tmp_path: Path
) -> None:
    found = client_.start(Options(str(folder), "cpu", cache_tokens=2048), 0)
    chat = client_.ServedChat()
    with pytest.raises(Cancelled):
        chat.ask(found, ("Write a long text.",), lambda event: chat.cancel())
    eventually(lambda: client_.served_models()[0].figures.get("running") == 0)
    client_.stop(found.port)
    with pytest.raises(UserError, match="not served any more"):
        client_.ServedChat().ask(found, ("x",), lambda event: None)
    tiny.make(tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "intermediate_size": 100}))
    odd = client_.start(Options(str(tmp_path / "odd"), "cpu"), 0)
    eventually(lambda: client_.served_models()[0].phase == "failed")
    assert "but config.json means" in in_english(client_.served_models()[0].note)
    client_.stop(odd.port)


def test_an_engine_that_is_stuck_is_known_and_can_be_stopped(
    folder: Path, alone: Shell, cpu_home: Path
) -> None:
    found = client_.start(Options(str(folder), "cpu", cache_tokens=2048), 0)
    eventually(lambda: client_.served_models()[0].phase == "ready")
    (engine,) = psutil.Process(found.pid).children()
    engine.suspend()
    assert "the engine does not answer" in alone("models", "served").lower()
    assert "was stopped" in alone("models", "stop", "tiny")
    _assert_nothing_is_left(found.pid, engine)


def test_a_server_that_is_stuck_is_known_and_can_be_stopped(
    folder: Path, alone: Shell, cpu_home: Path
) -> None:
    found = client_.start(Options(str(folder), "cpu", cache_tokens=2048), 0)
    eventually(lambda: client_.served_models()[0].phase == "ready")
    (engine,) = psutil.Process(found.pid).children()
    engine.suspend()
    psutil.Process(found.pid).suspend()
    assert f"gpudeck models stop {found.port}" in alone("models", "served")
    assert "was stopped" in alone("models", "stop", str(found.port))
    _assert_nothing_is_left(found.pid, engine)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_engine_with_the_server(
    folder: Path, cpu_home: Path, signum: signal.Signals
) -> None:
    found = client_.start(Options(str(folder), "cpu", cache_tokens=2048), 0)
    eventually(lambda: client_.served_models()[0].phase == "ready")
    (engine,) = psutil.Process(found.pid).children()
    engine.suspend()  # it does not see that its input ends
    os.kill(found.pid, signum)
    _assert_nothing_is_left(found.pid, engine)


def _assert_nothing_is_left(server: int, engine: psutil.Process) -> None:
    eventually(lambda: psutil.Process(server).status() == psutil.STATUS_ZOMBIE)  # of ours
    eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE)
    assert client_.sockets() == []
