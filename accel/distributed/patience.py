"""Say how long a rank waits for another one."""

from __future__ import annotations

PATIENCE_S = 60.0
"""A rank that hears nothing from another one for so long raises an error, or ends."""
