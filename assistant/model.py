"""RWKV-7 under the name that GPU Deck's Python API documents: `from assistant.model import RWKV7`.

The engine itself is `accel.rwkv`. This module keeps programs that use the documented name working.
"""

from __future__ import annotations

from accel.rwkv.model import RWKV7
from accel.rwkv.state import State

__all__ = ["RWKV7", "State"]
