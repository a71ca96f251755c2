"""Count the modules of ours that run on the way from a user's act to its effect.

    python -m tests.walks

A walk is run, not read: `sys.setprofile` notes each function of ours that begins. What runs while a
module is imported does not count, nor do functions of the tests. A module is revisited if a call
enters it while one of its own functions waits for another module, in the same process: there the
way turns back. `docs/architecture.md` holds what this prints, and a test compares.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
OURS = ("accel", "app", "assistant", "scheduler", "gpudeck")


@dataclass
class Way:
    """The modules in the order of their first call, and those that were revisited."""

    modules: list[str] = field(default_factory=list)
    revisited: list[str] = field(default_factory=list)


class Walk(NamedTuple):
    """A way whose length is limited."""

    title: str
    most: int
    """Modules."""
    run: Callable[[], Way]

    def render(self, way: Way) -> str:
        """Return the modules as a paragraph of the documents."""
        named = (
            f"`{module}`{' (revisited)' if module in way.revisited else ''}"
            for module in way.modules
        )
        count = f"{len(way.modules)} modules, at most {self.most}"
        text = f"{self.title} ({count}): {', '.join(named)}."
        return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def module_of(file: str) -> str | None:
    """Return the module of ours that a source file holds, such as `accel.attention.api`."""
    path = Path(file)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__") if parts[0] in OURS else None


@contextmanager
def noted() -> Iterator[Way]:
    """Note the way of what this thread runs."""
    way, waiting = Way(), list[str | None]()
    known: dict[str, str | None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if file not in known:
                known[file] = module_of(file)
            imported = frame.f_code.co_name == "<module>"
            waiting.append("import" if imported else known[file])
            _arrive(way, waiting)
        elif event == "return" and waiting:
            waiting.pop()

    sys.setprofile(note)
    try:
        yield way
    finally:
        sys.setprofile(None)


def _arrive(way: Way, waiting: list[str | None]) -> None:
    """Note the module of the function that begins, the last of those that wait."""
    module = waiting[-1]
    ours = [name for name in waiting if name is not None]
    if module is None or "import" in ours:
        return
    if module not in way.modules:
        way.modules.append(module)
    left = any(name != module for name in ours[ours.index(module) :])
    if left and module not in way.revisited:
        way.revisited.append(module)


def first_attention_on_hopper() -> Way:
    """Walk from a program's first call of `attention` to the launch of the kernel.

    The tensors are on the CPU, the driver does nothing, and the problem says that it is on an H100,
    at a shape that no table holds.
    """
    import torch

    from gpudeck.accel.attention import BACKENDS, attention, inputs, table
    from gpudeck.accel.attention.backends.own import Hopper
    from gpudeck.accel.attention.lessons import STORE
    from tests.stub_driver import stub_driver

    describe, rules = inputs.Problem, Hopper.rules
    on_hopper = {"device": torch.device("cuda", 0), "capability": (9, 0)}
    BACKENDS["hopper"].load()
    x = [torch.empty(3, 12, 3000, 128, dtype=torch.bfloat16) for _ in range(3)]
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory())
        stack.enter_context(patch.dict(os.environ, GPUDECK_HOME=home))
        stack.enter_context(stub_driver())
        for name, value in {
            "is_available": lambda: True,
            "get_device_name": lambda _=None: "NVIDIA H100 80GB HBM3",
        }.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(Hopper, "rules", rules))
        stack.enter_context(
            patch.object(inputs, "Problem", lambda **given: replace(describe(**given), **on_hopper))
        )
        STORE.forget()
        table.forget()
        with noted() as way:
            attention(*x, causal=True)
    return way


WALKS = (
    Walk(
        "**A program's first attention call to its launch on Hopper**",
        18,
        first_attention_on_hopper,
    ),
)

if __name__ == "__main__":
    print("\n\n".join(walk.render(walk.run()) for walk in WALKS))
