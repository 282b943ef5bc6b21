"""What executors tell before a load begins."""

from __future__ import annotations

import pytest

import roq
from roq.errors import ConfigError
from roq.simulation.lab.live.tasks import Found, check_versions


def test_an_executor_with_another_roq_is_named_with_both_versions() -> None:
    same = Found(host="a", machine="m", version=roq.__version__)
    check_versions([same])
    for version, words in (("0.0.9", "0.0.9"), ("", "of an older version")):
        other = Found(host="b", machine="n", version=version)
        with pytest.raises(
            ConfigError, match=f"on b has RoQ {words}, the driver {roq.__version__}"
        ):
            check_versions([same, other])
