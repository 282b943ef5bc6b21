"""kazoo's client: which servers it tries, and that it goes on trying."""

import errno
import time

import pytest
from kazoo.retry import ForceRetryError

from roq.coordination import kazoo_client


@pytest.mark.parametrize(
    ("servers", "given"),
    [("a:1", "a:1,a:1,a:1,a:1"), ("a:1,b:1,c:1", "a:1,b:1,c:1,a:1,b:1,c:1")],
)
def test_every_server_is_tried_several_times_within_a_session(servers: str, given: str) -> None:
    assert kazoo_client.repeated(servers) == given


def test_a_connection_is_made_again_where_time_sleep_fails(monkeypatch) -> None:
    def fails(_seconds: float) -> None:
        raise OSError(errno.EINVAL, "the clock was set")

    monkeypatch.setattr(time, "sleep", fails)
    attempts = []

    def connect() -> str:
        attempts.append(None)
        if len(attempts) < 3:
            raise ForceRetryError
        return "connected"

    assert kazoo_client.endless_retry()(connect) == "connected"
    assert kazoo_client.patient_handler().sleep_func is kazoo_client.endless_retry().sleep_func
