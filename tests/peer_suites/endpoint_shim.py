"""Let the tests of OpenAI's client and of vLLM's server ask our endpoint: a plugin of pytest.

ENDPOINT and TOKEN say where it is. Whatever model a test names is the one that is served. Modules
of vLLM itself are absent: a test that computes with them fails, and says so.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, Self

import huggingface_hub
import openai

MODEL = "tiny"
_ABSENT = (
    "vllm", "vllm.envs", "vllm.sampling_params", "vllm.tokenizers", "vllm.entrypoints",
    "vllm.entrypoints.openai", "vllm.entrypoints.openai.chat_completion",
    "vllm.entrypoints.openai.chat_completion.protocol",
)  # fmt: skip


class RemoteOpenAIServer:
    """Stand for the server that vLLM's tests start."""

    def __init__(self, *_: object, **__: object) -> None:
        self.url_root = os.environ["ENDPOINT"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def url_for(self, *parts: str) -> str:
        """Return an address of the server."""
        return "/".join((self.url_root, *parts))

    def get_client(self, **asked: Any) -> openai.OpenAI:
        """Return a client of the server."""
        return openai.OpenAI(**asked)

    def get_async_client(self, **asked: Any) -> openai.AsyncOpenAI:
        """Return a client of the server that does not block."""
        return openai.AsyncOpenAI(**asked)


class _Absent(ModuleType):
    """Hold names that fail once they are used."""

    __path__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def fail(*_: object, **__: object) -> None:
            raise NotImplementedError(f"the test computes with vLLM's own {name}")

        return fail


def pytest_configure() -> None:
    """Give every client our address and token, and every request our model."""
    for client in (openai.OpenAI, openai.AsyncOpenAI):
        client.__init__ = _started(client.__init__)
        client._build_request = _named(client._build_request)
    if os.environ["SUITE"] == "vllm":
        _stand_for_vllm()


def _stand_for_vllm() -> None:
    """Lay what vLLM's tests import: their helpers, its modules, and a download that is not made."""
    helpers = ModuleType("tests.utils")
    made = {"RemoteOpenAIServer": RemoteOpenAIServer, "ROCM_ENV_OVERRIDES": {}}
    vars(helpers).update(made, ROCM_EXTRA_ARGS=[])
    sys.modules |= {name: _Absent(name) for name in _ABSENT} | {"tests.utils": helpers}
    huggingface_hub.snapshot_download = lambda *_, **__: ""


def _started(start: Any) -> Any:
    def started(self: Any, **asked: Any) -> None:
        address = {"base_url": f"{os.environ['ENDPOINT']}/v1", "api_key": os.environ["TOKEN"]}
        start(self, **{**asked, **address, "max_retries": 0, "timeout": 60})

    return started


def _named(build: Any) -> Any:
    def named(self: Any, options: Any, **asked: Any) -> Any:
        if isinstance(options.json_data, dict) and "model" in options.json_data:
            options.json_data = {**options.json_data, "model": MODEL}
        if options.method == "get" and options.url.startswith("/models/"):
            options.url = f"/models/{MODEL}"
        return build(self, options, **asked)

    return named
