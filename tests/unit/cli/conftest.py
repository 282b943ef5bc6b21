from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

import roq

C = TypeVar("C")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[C], C]:
    """Makes all commands connect to a cluster on paper, and gives it back."""

    def give(cluster: C) -> C:
        monkeypatch.setattr(roq, "connect", lambda *_args, **_given: cluster)
        return cluster

    return give
