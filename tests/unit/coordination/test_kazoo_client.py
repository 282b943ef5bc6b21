"""kazoo's client: which servers it tries, and that it goes on trying."""

import errno
import threading
import time

import pytest
from kazoo.retry import ForceRetryError

from roq.coordination import kazoo_client
from roq.coordination.kazoo_client import check_root, check_servers
from roq.errors import ConfigError


@pytest.mark.parametrize(
    ("servers", "given"),
    [("a:1", "a:1,a:1,a:1,a:1"), ("a:1,b:1,c:1", "a:1,b:1,c:1,a:1,b:1,c:1")],
)
def test_every_server_is_tried_several_times_within_a_session(servers: str, given: str) -> None:
    assert kazoo_client.repeated(servers) == given


def test_a_connection_is_made_again_where_time_sleep_fails(monkeypatch) -> None:
    here = threading.get_ident()

    def fails(seconds: float) -> None:
        if threading.get_ident() == here:
            raise OSError(errno.EINVAL, "the clock was set")
        threading.Event().wait(seconds)  # a thread that another test has left

    monkeypatch.setattr(time, "sleep", fails)
    attempts = []

    def connect() -> str:
        attempts.append(None)
        if len(attempts) < 3:
            raise ForceRetryError
        return "connected"

    assert kazoo_client.endless_retry()(connect) == "connected"
    assert kazoo_client.patient_handler().sleep_func is kazoo_client.endless_retry().sleep_func


@pytest.mark.parametrize(
    "servers", ["localhost", "localhost:2181", "a.b-c:1, d:2", "[::1]:2181", "10.0.0.1:2181,b"]
)
def test_addresses_of_an_ensemble_are_taken(servers: str) -> None:
    assert check_servers(servers) == servers


@pytest.mark.parametrize(
    "servers", ["", "a:1,,b:2", "host:port", "host:2181/chroot", "a b:1", "::1:2181", "host:123456"]
)
def test_malformed_addresses_are_refused_at_once(servers: str) -> None:
    with pytest.raises(ConfigError):
        check_servers(servers)


@pytest.mark.parametrize("root", ["", "/", "RoQ", "/RoQ/", "/a//b", "/../b"])
def test_a_root_that_is_no_path_is_refused_at_once(root: str) -> None:
    with pytest.raises(ConfigError, match="write it like /RoQ"):
        check_root(root)
