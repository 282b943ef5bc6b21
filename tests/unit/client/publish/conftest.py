"""A publisher that is connected."""

import pytest
from publisher_script import Script


@pytest.fixture
def ready() -> Script:
    script = Script()
    script.assign()
    script.accept()
    return script
