"""Search Hugging Face for models that can be downloaded and run here.

Only public models are found. `HF_ENDPOINT` names another hub, as for downloads.
"""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Annotated

import msgspec

from gpudeck.accel.serving.families import FAMILIES, RECURRENT
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError

_HUB = "https://huggingface.co"
_ASKED, MOST_FOUND = 60, 8
"""The models that the hub is asked for, and those that are returned at most."""
MOST_BYTES, PATIENCE_S = 2**22, 15.0
"""Bytes of a reply, and seconds until it has come."""
_PIECE = 2**16
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
"""The name of a model on a hub."""
_EXPANDED = ("safetensors", "config", "downloads", "gated")
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1}
_USUAL_BYTES = 2
"""Bytes of a parameter of any other type."""


class HubModel(msgspec.Struct, frozen=True):
    """Describe a model of the hub."""

    name: str
    """OWNER/NAME."""
    parameters: int
    bytes: int
    downloads: int
    """In the last month."""
    gated: bool
    """Its publisher wants people to sign in and agree to terms first."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Tensors(msgspec.Struct):
    parameters: dict[str, _Count] = {}


class _Config(msgspec.Struct):
    model_type: str | None = None


class _Entry(msgspec.Struct):
    id: str
    safetensors: _Tensors | None = None
    config: _Config | None = None
    downloads: _Count = 0
    gated: bool | str = False


def search_hub(words: str) -> tuple[HubModel, ...]:
    """Return models of served families whose names have these words, most downloaded first.

    Raises:
        UserError: The hub cannot be reached, or its reply cannot be read.
    """
    endpoint = os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise UserError(phrase("HF_ENDPOINT is no address of a hub: {address}", address=endpoint))
    query = [("search", words), ("filter", "safetensors"), ("sort", "downloads")]
    query += [("direction", "-1"), ("limit", str(_ASKED))]
    query += [("expand[]", name) for name in _EXPANDED]
    address = f"{endpoint}/api/models?{urllib.parse.urlencode(query)}"
    try:
        received = _received(address)
    except (OSError, ValueError, http.client.HTTPException) as e:
        problem = str(getattr(e, "reason", e))
        raise UserError(
            phrase("{hub} cannot be searched: {problem}", hub=endpoint, problem=problem)
        ) from e
    try:
        if len(received) > MOST_BYTES:
            raise ValueError("it is too long")
        entries = msgspec.json.decode(received, type=list[_Entry])
    except MALFORMED as e:
        raise UserError(
            phrase(
                "{hub} sent a reply that cannot be read: {problem}", hub=endpoint, problem=str(e)
            )
        ) from e
    return tuple(model for entry in entries if (model := _model(entry)) is not None)[:MOST_FOUND]


def _received(address: str) -> bytes:
    """Return the reply of a hub, or its first bytes where it is too long.

    Raises TimeoutError where the hub sends a byte now and then, and what `urlopen` raises.
    """
    received, end = bytearray(), time.monotonic() + PATIENCE_S
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as reply:  # noqa: S310 # checked before
        while len(received) <= MOST_BYTES and (part := reply.read1(_PIECE)):
            received += part
            if time.monotonic() > end:
                raise TimeoutError(f"its reply took over {PATIENCE_S:g} s")
    return bytes(received)


def _model(entry: _Entry) -> HubModel | None:
    """Return the model; None for one of another family, of unknown size, or with a wrong name."""
    kind = entry.config.model_type if entry.config else None
    counts = entry.safetensors.parameters if entry.safetensors else {}
    if kind not in (*FAMILIES, RECURRENT) or not counts or not NAME.fullmatch(entry.id):
        return None
    size = sum(count * _BYTES.get(dtype, _USUAL_BYTES) for dtype, count in counts.items())
    return HubModel(entry.id, sum(counts.values()), size, entry.downloads, bool(entry.gated))
