"""The shell of a publisher; the rest is tested with real exchanges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from roq.client.publish.shell import PublisherShell
from roq.errors import Closed


def test_a_child_forked_in_the_middle_of_work_says_no_goodbye_over_its_parents_connection() -> None:
    def check_process() -> None:
        raise Closed("forked")

    def fail(_: object) -> None:
        raise AssertionError("found torn, the publisher fails and says so to its exchange")

    shell = SimpleNamespace(
        failure=None, machine=SimpleNamespace(changing=True), _fail=fail, _queue="orders",
        _engine=SimpleNamespace(check_process=check_process),
    )  # fmt: skip
    with pytest.raises(Closed, match="forked"):
        PublisherShell._whole(cast("PublisherShell", shell))
