"""What Tab completes, and that it says nothing when it knows nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete

from roq.cli import completion
from roq.cli.commands import cli
from roq.errors import Unavailable


class Cluster:
    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def queues(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in ("orders", "prices", "old")]

    def hosts(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(host=host) for host in ("127.0.0.1", "127.0.0.2")]

    def exchanges(self, queue: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=f"x{number}") for number in (1, 2)] if queue else []


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    shell = ShellComplete(cli, {}, "roq", "_ROQ_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), incomplete)]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    addresses: list[str] = []

    def connect(address: str, timeout: float) -> Cluster:
        assert timeout <= 1.0
        addresses.append(address)
        return Cluster()

    monkeypatch.setattr(completion.roq, "connect", connect)
    monkeypatch.delenv("ROQ_CLUSTER", raising=False)
    return addresses


@pytest.mark.parametrize("verb", ["queue show", "queue stop", "rules set", "pub", "sub", "top"])
def test_queues_are_completed(verb: str, asked: list[str]) -> None:
    assert completed(*verb.split(), "o") == ["old", "orders"]
    assert asked == ["127.0.0.1:5000"]


@pytest.mark.usefixtures("asked")
def test_hosts_and_exchanges_are_completed() -> None:
    assert completed("queue", "create", "--host", "") == ["127.0.0.1", "127.0.0.2"]
    assert completed("exchange", "add", "orders", "--host", "127.0.0.2") == ["127.0.0.2"]
    assert completed("exchange", "remove", "orders", "") == ["x1", "x2"]


def test_policies_are_completed_without_a_cluster() -> None:
    assert completed("rules", "set", "orders", "--policy", "s") == ["spread", "static"]


def test_the_cluster_that_was_typed_is_asked(asked: list[str]) -> None:
    completed("queue", "show", "--cluster", "a:1", "")
    completed("--cluster", "b:2", "queue", "show", "")
    assert asked == ["a:1", "b:2"]


def test_without_a_cluster_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def connect(address: str, timeout: float) -> Cluster:
        raise Unavailable("no configuration manager answers")

    monkeypatch.setattr(completion.roq, "connect", connect)
    assert completed("queue", "show", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_cluster_that_does_not_answer_costs_a_moment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("ROQ_CLUSTER", f"127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert completed("queue", "show", "") == []
        assert time.monotonic() - began < 15  # it takes a second; a busy machine takes longer
    assert capfd.readouterr() == ("", "")
