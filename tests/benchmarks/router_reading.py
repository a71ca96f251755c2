"""Count the held-out requests whose meaning the router model alone finds.

    python -m tests.benchmarks.router_reading [FOLDER]

`held_out_meanings.tsv` holds the meanings of the requests, alternatives behind bars, `none` where
no meaning is right. What came before a later turn is taken from that file as well, so that a wrong
turn does not spoil the next. These are validation figures: the requests are known since they were
judged, and the author of the phrases that the model learnt from had seen them.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

from gpudeck.assistant.intents.slots import slotted
from gpudeck.assistant.intents.spots import Known
from gpudeck.assistant.router.decode import Router
from gpudeck.assistant.router.symbols import canonical
from gpudeck.scheduler.protocol import paths

DATA = Path(__file__).parents[1] / "integration" / "data"
KNOWN = Known(
    ("train", "oom", "nan", "fetch", "render", "finetune", "bench", "eval", "big", "nightly",
     "sweep"),
    ("sweep",), ("baseline",),
)  # fmt: skip
_SLOT = re.compile(r": [njgqtsc]\d\b")


def earlier(meaning: str) -> str:
    """Return a meaning as what came before the next request."""
    if meaning.startswith(("no:", "plan", "none")):
        return ""
    first = _SLOT.sub(":", meaning.split(" & ", maxsplit=1)[0])
    said = " ".join(word for word in first.split() if word != "prev")
    if said.startswith(("jobs", "do:")):
        many = "group:" in said or " s=" in said or (said[0] == "j" and "job:" not in said)
        return f"{said} ; jobs" if many else f"{said} ; one job" if "job:" in said else said
    return f"{said} ; one gpu" if "dev:" in said or "who" in said.split() else said


def meanings() -> dict[tuple[str, str], list[str]]:
    """Return the right meanings by set and turn; a count of jobs may list them instead."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in (DATA / "held_out_meanings.tsv").read_text().splitlines():
        name, turn, text = line.split("\t")
        right = [one if one == "none" else canonical(one) for one in text.split("|")]
        right += [one.replace("since", "time: t1") for one in right if "since" in one]
        right += [one.replace(" a=count", "") for one in right if "a=count s=" in one]
        found[name, turn] = right
    return found


def main() -> None:
    """Print the shares, and each request whose meaning is not found."""
    router = Router.load(Path(sys.argv[1]) if len(sys.argv) > 1 else paths.router_model())
    wanted, right, asked = meanings(), Counter[str](), Counter[str]()
    spent: list[float] = []
    for name in ("first", "second", "third"):
        for line in (DATA / f"held_out_{name}.jsonl").read_text().splitlines():
            talk, before = json.loads(line), ""
            for i, turn in enumerate(talk["turns"], 1):
                slots = slotted(turn["text"], KNOWN, time.time(), i > 1)
                began = time.process_time()
                found = router.meanings(before, slots.text, list(slots.values))
                spent.append(time.process_time() - began)
                ours = wanted[name, f"{talk['id']}.{i}"]
                hit = bool(found) and found[0].text in ours
                for key in (name, f"{name} {talk['lang']}"):
                    asked[key] += 1
                    right[key] += hit
                if not hit:
                    said = found[0].text if found else "nothing"
                    print(f"{name} {talk['id']}.{i}: {slots.text} -> {said}, not {ours[0]}")
                before = earlier(ours[0])
    for key, count in asked.items():
        print(f"{key}: {right[key]} of {count}, {100 * right[key] / count:.0f} %")
    spent.sort()
    print(f"CPU time: {1e3 * spent[len(spent) // 2]:.0f} ms at the median, "
          f"{1e3 * spent[int(0.95 * len(spent))]:.0f} ms at P95")  # fmt: skip


if __name__ == "__main__":
    main()
