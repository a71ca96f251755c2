"""RWKV-7 under the name that GPU Deck's Python API documents.

    from gpudeck.assistant.model import RWKV7

The engine itself is `gpudeck.accel.rwkv`. This module keeps programs that use the documented name
working.
"""

from __future__ import annotations

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.state import State

__all__ = ["RWKV7", "State"]
