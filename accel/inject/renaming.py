"""Rename our package in the lines that `gpudeck inject` wrote before 0.2, when it was `accel`.

    python -P -m gpudeck.accel.inject.renaming

The daemon runs this when it starts, and so does `gpudeck inject`, so that linked files go on
working after an upgrade. Files whose lines have the present name are left alone.
"""

from __future__ import annotations

import sys

from gpudeck.accel.inject import journal

_OLD = b"from accel.inject import link as "
_NEW = b"from gpudeck.accel.inject import link as "


def rename_imports() -> list[str]:
    """Rename our package in all linked files, and return a line about each that was or is left."""
    lines = []
    for path in journal.changed_files():
        try:
            if journal.amend(path, lambda text: text.replace(_OLD, _NEW, 1)):
                lines.append(f"{path}: accel.inject was renamed to gpudeck.accel.inject")
        except journal.Refused as e:
            lines.append(f"{path}: accel.inject was not renamed: {e}")
    return lines


def main() -> None:
    """Rename them, write to standard error what was done, and note that it was."""
    for line in rename_imports():
        print(line, file=sys.stderr)
    journal.note_renamed()


if __name__ == "__main__":
    main()
