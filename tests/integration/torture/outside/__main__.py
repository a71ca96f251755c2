"""Run one campaign in its own process, and print its progress and outcome as lines of JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.integration.torture.outside.campaign import Campaign
from tests.integration.torture.outside.faults import inject
from tests.integration.torture.outside.plan import families, rounds
from tests.integration.torture.outside.verdict import vanished, violations
from tests.integration.torture.outside.world import World


def main() -> int:
    """Run the campaign, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.torture.outside")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--faults", type=int, required=True)
    parser.add_argument("--keep", type=Path, help="copy the folder there if something is found")
    for name in ("apart", "disk"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    world = World(args.folder, apart=args.apart, disk=args.disk)
    campaign = Campaign(world)
    try:
        kinds = families(disk=args.disk)
        evidence = campaign.run(
            rounds(args.seed, kinds), args.faults, inject, lambda kind: _print(struck=kind)
        )
        found = violations(evidence)
        if found and args.keep:
            subprocess.run(["cp", "-a", args.folder, args.keep], check=True)
    finally:
        campaign.close()
    ends = Counter(
        evidence.listed[token][0].status
        for token in evidence.acknowledged
        if evidence.listed.get(token)
    )
    begun = [line for line in evidence.ledger if line.code is None]
    _print(
        faults=campaign.struck,
        acknowledged=len(evidence.acknowledged),
        refused=campaign.refused,
        repeated=campaign.repeated,
        unclear_and_run=len({line.token for line in begun} & set(evidence.unclear)),
        runs=len(begun),
        ends=ends,
        vanished=len(vanished(evidence)),
        violations=found,
    )
    return 0


def _print(**values: object) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
