"""The configuration manager as a process: exit codes, readiness, real ZooKeeper, clean stop."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest
import zmq
from gcm_process import SESSION_SECONDS, Console, DaemonProcess, PaperHostManager
from gcm_script import PaperHost
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

from roq.protocol import broadcast

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    started: list[DaemonProcess] = []

    def begin(text: str) -> DaemonProcess:
        started.append(DaemonProcess("roq.gcm", tmp_path_factory.mktemp("gcm"), text))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def test_it_serves_with_a_real_registry_and_stops_clean(start, zookeeper: str) -> None:
    text = f'[ports]\nbase = 0\n[zk]\nservers = "{zookeeper}"\n'
    text += f"session_seconds = {SESSION_SECONDS}\n"
    first = start(text)
    one = first.ready()
    second = start(text)
    two = second.ready()
    host = PaperHost("127.0.0.1")
    with (
        Console(one["management"]) as console,
        Console(two["management"]) as other,
        Console(one["broadcast"], kind=zmq.SUB) as reader,
    ):
        reader.socket.setsockopt(zmq.SUBSCRIBE, b"")
        with PaperHostManager(host, one["client"]):
            answer = console.ask(2003, QName="orders", Host="127.0.0.1")
            assert (answer["RESULT"], answer["COMMENT"]) == (0, "SUCCESS")
            assert (
                console.ask(
                    2006,
                    QName="orders",
                    AUTOSCALING_NAME="m",
                    AUTOSCALING_XCHANGE={"AUTOSCALING_XCHANGE_THR": 5},
                )["RESULT"]
                == 0
            )
            assert (
                console.ask(2004, QName="orders", Host="127.0.0.1", TransactionID="t")["Number"]
                == 2
            )
        assert other.ask(2101)["RESULT"] == 8
        assert other.ask(2101)["COMMENT"] == one["management"]
        eventually(
            lambda: broadcast.decode(reader.socket.recv_multipart()).queues != (), "a broadcast"
        )
        first.child.send_signal(signal.SIGTERM)
        assert first.ends() == 0
        eventually(lambda: other.ask(2101)["RESULT"] == 0, "the second leads")
        assert other.ask(2007, QName="orders")["AUTOSCALING_XCHANGE"] == {
            "AUTOSCALING_XCHANGE_THR": 5
        }
        assert other.ask(2004, QName="orders", Host="127.0.0.1", TransactionID="t")["Number"] == 2
        described = other.ask(2104, QName="orders")
        assert described["Monitor"] == "tcp://127.0.0.1:6001"
        with PaperHostManager(host, two["client"]):
            assert other.ask(2001, QName="orders")["RESULT"] == 0
            assert host.children == {}
    second.child.send_signal(signal.SIGINT)
    assert second.ends() == 0


def test_without_zookeeper_it_gives_up_and_says_what_to_do(start) -> None:
    process = start('[ports]\nbase = 0\n[zk]\nservers = "127.0.0.1:1"\nconnect_seconds = 0.5\n')
    assert process.ends() == 69
    assert "zk.servers" in process.log.read_text()


def test_a_port_in_use_ends_it_with_the_port_named(start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(f"[ports]\nbase = 0\nmanagement = {port}\n")
        assert process.ends() == 78
    assert f"port {port}" in process.log.read_text()


@pytest.mark.parametrize("text", ["[ports]\nbas = 1\n", "nonsense", '[zk]\nservers = "a b/c"\n'])
def test_a_wrong_configuration_ends_it(start, text: str) -> None:
    process = start(text)
    assert process.ends() == 78
    assert process.log.read_text()
