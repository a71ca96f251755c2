"""Try every command of the README and the manual: python -m tests.manual_commands [PAGE ...]

Each page gets an empty state folder, a folder with the files that it talks about, and a daemon of
its own. Prints for each command whether it ran, or why it cannot be run here, and fails where one
that runs fails, or has words that the program does not know.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.manual_commands import python
from tests.manual_commands.excuses import excuse_of
from tests.manual_commands.pages import PAGES, blocks, commands, spans
from tests.manual_commands.shell import shell_for
from tests.manual_commands.words import wrong_words


def failures(page: Path) -> list[str]:
    """Try everything on a page, and return what failed; print what is tried."""
    failed = [
        f"{page.name}:{text.line}: {text.text}\n{wrong}"
        for text in (*spans(page), *commands(page))
        if text.text.startswith("gpudeck ") and (wrong := wrong_words(text.text))
    ]
    failed += python.problems(page)
    tries = [(text, False) for text in commands(page)]
    tries += [(code, True) for code in blocks(page, "python") if python.stands_alone(code.text)]
    with shell_for(page.name) as shell:
        for text, is_python in sorted(tries):
            place = f"{page.name}:{text.line}: {'Python code' if is_python else text.text}"
            if not is_python and (excuse := excuse_of(text.text)):
                print(f"{place}\n    not run: {excuse.reason}", flush=True)
                continue
            wrong = shell.run_python(text.text) if is_python else shell.run(text.text)
            print(f"{place}\n    {'FAILED' if wrong else 'ran'}", flush=True)
            if wrong:
                failed.append(f"{place}\n{wrong}")
        failed += [f"{page.name}: {text}" for text in shell.failed_jobs()]
    return failed


def main() -> int:
    """Try the pages that are named, else all; return the exit status."""
    chosen = [page for page in PAGES if not sys.argv[1:] or page.name in sys.argv[1:]]
    failed = [text for page in chosen for text in failures(page)]
    print(*failed, f"{len(failed)} failed", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
