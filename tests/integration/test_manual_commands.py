"""Every command of the README and the manual does what it says, or its excuse is named."""

import pytest

from tests.manual_commands.__main__ import failures
from tests.manual_commands.pages import PAGES, blocks

WITH_CODE = [page for page in PAGES if blocks(page, "sh") or blocks(page, "python")]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page):
    assert failures(page) == []
