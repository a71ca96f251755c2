"""The ways from an act to its effect stay short, and the documents name the modules on them."""

import re

import pytest
import torch

from gpudeck.accel.runtime import state_files, timing
from tests.walks.noting import ROOT, Way, noted
from tests.walks.table import WALKS, modules_of


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.title)
def test_a_walk_is_short_and_as_the_documents_say(walk):
    sections = walk.run()
    assert len(modules_of(sections)) <= walk.most
    assert {m for way in sections.values() for m in way.revisited} <= walk.revisited
    said = (ROOT / "docs" / "architecture.md").read_text().partition(walk.title)[2]
    paragraph = " ".join(said.partition("\n\n")[0].split())
    # the order of two modules may depend on which value changes first
    named, found = set(re.findall(r"`([\w.]+)`", paragraph)), modules_of(sections)
    assert found <= named <= found | walk.sometimes
    assert f"({len(named)} modules, at most {walk.most})" in paragraph


def test_a_way_that_turns_back_is_noticed(tmp_path):
    def contents(_: bytes) -> bytes:
        return b"%f" % timing.percentiles([1.0], 50)

    with noted() as way:
        timing.percentiles([1.0], 50)
        timing.time_call(
            lambda: state_files.change(tmp_path / "file", contents), torch.device("cpu")
        )
    names = ["accel.runtime.timing", "accel.runtime.state_files"]
    assert way == Way(names, ["accel.runtime.timing"])
