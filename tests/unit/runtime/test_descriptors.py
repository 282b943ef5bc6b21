import os
import resource
from collections.abc import Iterator

import pytest

from roq.runtime import descriptors


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_takes_as_many_as_it_may(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    assert descriptors.raise_limit() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_it_is_known_when_none_is_left(limits: tuple[int, int]) -> None:
    assert not descriptors.exhausted()
    _, hard = limits
    last = os.open(os.devnull, os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    assert descriptors.exhausted()
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    assert not descriptors.exhausted()
