"""Search Hugging Face for models that can be downloaded and run here.

Only public models are found. `HF_ENDPOINT` names another hub, as for downloads.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.parse
import urllib.request

import msgspec

from gpudeck.accel.serving.families import FAMILIES, RECURRENT
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

_HUB = "https://huggingface.co"
_ASKED, MOST_FOUND = 60, 8
"""The models that the hub is asked for, and those that are returned at most."""
_MOST_BYTES, _PATIENCE_S = 2**22, 15.0
"""Bytes of a reply, and seconds until it comes."""
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


class _Tensors(msgspec.Struct):
    parameters: dict[str, int] = {}


class _Config(msgspec.Struct):
    model_type: str | None = None


class _Entry(msgspec.Struct):
    id: str
    safetensors: _Tensors | None = None
    config: _Config | None = None
    downloads: int = 0
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
        with urllib.request.urlopen(address, timeout=_PATIENCE_S) as reply:  # noqa: S310 # checked above
            received = reply.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as e:
        problem = str(getattr(e, "reason", e))
        raise UserError(
            phrase("{hub} cannot be searched: {problem}", hub=endpoint, problem=problem)
        ) from e
    try:
        if len(received) > _MOST_BYTES:
            raise msgspec.DecodeError("it is too long")
        entries = msgspec.json.decode(received, type=list[_Entry])
    except msgspec.DecodeError as e:
        raise UserError(
            phrase(
                "{hub} sent a reply that cannot be read: {problem}", hub=endpoint, problem=str(e)
            )
        ) from e
    return tuple(model for entry in entries if (model := _model(entry)) is not None)[:MOST_FOUND]


def _model(entry: _Entry) -> HubModel | None:
    """Return the model; None for one of another family, or of unknown size."""
    kind = entry.config.model_type if entry.config else None
    counts = entry.safetensors.parameters if entry.safetensors else {}
    if kind not in (*FAMILIES, RECURRENT) or not counts:
        return None
    size = sum(count * _BYTES.get(dtype, _USUAL_BYTES) for dtype, count in counts.items())
    return HubModel(entry.id, sum(counts.values()), size, entry.downloads, bool(entry.gated))
