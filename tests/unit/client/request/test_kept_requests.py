"""What is kept to be sent once more has a bound, and gives its room back."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from roq.client.request import kept_requests
from roq.client.request.endpoint import endpoint
from roq.client.request.kept_requests import KeptRequests
from roq.client.request.many import PendingMany
from roq.client.request.pending import Pending

ECHO = endpoint("s.echo", request=bytes, response=bytes)
NOBODY = cast("Any", None)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_requests, "REPEAT_BYTES", 25)


def test_the_allowance_is_given_back_whoever_takes_and_gives() -> None:
    kept = KeptRequests()
    pendings: list[Pending[bytes]] = [Pending(NOBODY, "work", ECHO) for _ in range(3)]
    for each in pendings:
        kept.keep(each, b"x" * 10)
    assert [each.repeat is None for each in pendings] == [False, False, True]
    threads = [threading.Thread(target=kept.let_go, args=[each]) for each in pendings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.bytes == 0


def test_the_allowance_of_many_is_given_back() -> None:
    kept = KeptRequests()
    many: PendingMany[bytes] = PendingMany(NOBODY, "work", ECHO, 2)
    others: PendingMany[bytes] = PendingMany(NOBODY, "work", ECHO, 1)
    kept.keep_many(many, [b"x" * 10] * 2)
    kept.keep_many(others, [b"x" * 10])
    assert (others.repeat, kept.bytes) == (None, 20)
    kept.let_go(many)
    assert kept.bytes == 0
