"""Everything here is small: a second thread of torch would only wait for the first."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def alone(one_thread):
    pass
