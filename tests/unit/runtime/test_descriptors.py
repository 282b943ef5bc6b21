import errno
import os
import resource
from collections.abc import Iterator

import pytest

from roq.errors import Unavailable
from roq.runtime import descriptors, procfs


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


def test_a_client_takes_no_more_than_it_needs(limits: tuple[int, int]) -> None:
    _, hard = limits
    few = hard // 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    assert descriptors.raise_limit(2 * few) == 2 * few
    assert descriptors.raise_limit(few) == 2 * few
    assert descriptors.raise_limit(2 * hard) == hard


def test_a_limit_that_cannot_be_changed_stays(
    limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not for you")

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert descriptors.raise_limit() == hard // 2


def test_who_needs_more_than_are_left_is_told_the_figures(limits: tuple[int, int]) -> None:
    _, hard = limits
    used = procfs.open_files(os.getpid())
    assert used
    limit = used + 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    descriptors.need(5, "a client")
    with pytest.raises(Unavailable, match=rf"for a client: \d+ of {limit} are open; raise the lim"):
        descriptors.need(20, "a client")


def test_a_reason_has_the_figures_if_it_is_for_want_of_descriptors(
    limits: tuple[int, int],
) -> None:
    _, hard = limits
    full = OSError(errno.EMFILE, "Too many open files")
    assert "context" in descriptors.reason(full)
    assert descriptors.reason(OSError(errno.EINVAL, "Invalid")) == "Invalid"
    last = os.open(os.devnull, os.O_RDONLY)
    os.close(last)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last, hard))
    assert f" of {last} are open; raise the limit" in descriptors.reason(full)
