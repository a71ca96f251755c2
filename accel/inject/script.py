"""Run a script with its attention linked.

python -m gpudeck.accel.inject.script SCRIPT [ARG ...]
"""

from __future__ import annotations

import atexit
import builtins
import sys
from pathlib import Path
from types import ModuleType

from gpudeck.accel.inject import hook, link


def main() -> None:
    """Run the script that the command line names."""
    sys.argv = sys.argv[1:]
    path = Path(sys.argv[0])
    sys.path[0] = str(path.resolve().parent)
    hook.on()
    atexit.register(hook.write_report)
    text = hook.linked_text(path)
    script = sys.modules["__main__"] = ModuleType("__main__")
    script.__dict__.update({"__file__": str(path), "__builtins__": builtins, hook.ALIAS: link})
    exec(compile(text, str(path), "exec", dont_inherit=True), script.__dict__)  # noqa: S102


if __name__ == "__main__":
    main()
