"""The shell of a configuration manager: its sockets, its registry, how it starts and ends."""

import os
import socket
from collections.abc import Iterator

import bson
import msgspec
import pytest
import zmq
from gcm_process import Console, PaperHostManager, RunningGcm
from gcm_script import ME, PaperHost
from waiting import eventually

from roq.coordination.addresses import Zk
from roq.coordination.memory import MemoryEnsemble
from roq.errors import ConfigError
from roq.gcm.config import GcmConfig, Network, Ports, Provision
from roq.gcm.daemon import KIND, birth
from roq.gcm.events import ClusterNamed, Elected, ManagementFrame
from roq.gcm.machine import Settings
from roq.gcm.state.records import decode_snapshot
from roq.protocol import broadcast
from roq.protocol.control import StartMonitor
from roq.runtime.flight import encode


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def gcm(ensemble: MemoryEnsemble) -> Iterator[RunningGcm]:
    with RunningGcm(ensemble) as running:
        yield running
    assert running.code == 0


def test_a_client_that_does_not_read_stops_nobody(gcm: RunningGcm) -> None:
    with (
        Console(gcm.manager.management, kind=zmq.DEALER) as deaf,
        Console(gcm.manager.management) as console,
    ):
        for _ in range(3_000):
            try:
                deaf.socket.send(bson.encode({"CMD": 2009}), zmq.NOBLOCK)
            except zmq.Again:
                break
        assert console.ask(2009)["RESULT"] == 0


def test_bytes_of_another_protocol_on_a_port_harm_nobody(gcm: RunningGcm) -> None:
    manager = gcm.manager
    for address in (manager.client, manager.management, manager.broadcast):
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        for data in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5_000), b"\xff" * 64, b""):
            with socket.create_connection((host, int(port))) as raw:
                raw.sendall(data)
    with Console(manager.management) as console, Console(manager.client) as client:
        assert console.ask(2101)["RESULT"] == 0
        assert client.ask(2000, QName="none")["RESULT"] == 1101


def test_without_a_registry_it_gives_up_with_its_own_exit_code() -> None:
    ensemble = MemoryEnsemble()
    config = GcmConfig(ports=Ports(base=0), zk=Zk(connect_seconds=0.2))
    running = RunningGcm(ensemble, config)
    # The ensemble never lets it in.
    running.registries[0]._memory.resume = lambda: None  # type: ignore[method-assign]
    assert running.gcm.run() == 69


def test_bound_elsewhere_it_warns_and_advertises_its_other_address(
    ensemble: MemoryEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(bind="0.0.0.0", advertise="127.0.0.1")
    config = GcmConfig(network=network, ports=Ports(base=0))
    with RunningGcm(ensemble, config) as gcm, Console(gcm.manager.management) as console:
        assert gcm.manager.client.startswith("tcp://127.0.0.1:")
        assert console.ask(2101)["RESULT"] == 0
    assert "authenticated" in caplog.text


def test_it_says_where_it_answers_once_it_leads(gcm: RunningGcm) -> None:
    manager = gcm.manager
    assert gcm.addresses == {
        "client": manager.client, "management": manager.management, "broadcast": manager.broadcast,
    }  # fmt: skip
    with Console(manager.management) as console, Console(manager.client) as client:
        assert console.ask(2101) == {"RESULT": 0, "COMMENT": "SUCCESS", "Queues": []}
        assert client.ask(2000, QName="q")["CODE"] == "queue_not_found"


def test_whoever_begins_to_listen_hears_at_once_how_it_is(gcm: RunningGcm) -> None:
    with Console(gcm.manager.broadcast, kind=zmq.SUB) as reader:
        reader.socket.setsockopt(zmq.SUBSCRIBE, b"")
        told = broadcast.decode(reader.socket.recv_multipart())
        assert (told.queues, told.hosts) == ((), ())


def test_whoever_waits_is_answered_before_it_ends_and_another_one_leads(
    ensemble: MemoryEnsemble,
) -> None:
    host = PaperHost("127.0.0.1", mute={StartMonitor})
    with (
        RunningGcm(ensemble) as first,
        RunningGcm(ensemble) as second,
        PaperHostManager(host, first.manager.client),
        Console(first.manager.management, kind=zmq.DEALER) as console,
        Console(second.manager.management) as other,
    ):
        assert other.ask(2101)["RESULT"] == 8
        console.socket.send(bson.encode({"CMD": 2010, "QName": "orders"}))
        eventually(lambda: any(isinstance(each, StartMonitor) for each in host.asked))
        first.gcm.stop()
        assert bson.decode(console.socket.recv())["CODE"] in {"not_leader", "interrupted"}
        first.stop()
        assert first.code == 0
        eventually(lambda: other.ask(2101)["RESULT"] == 0, "another one leads")


@pytest.mark.parametrize("name", ["client", "management", "broadcast"])
def test_a_port_that_somebody_has_is_named(ensemble: MemoryEnsemble, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = GcmConfig(ports=Ports(base=0, **{name: port}))
        with pytest.raises(ConfigError, match=str(port)):
            RunningGcm(ensemble, config)


def test_a_provider_that_nobody_offers_is_refused_before_anything_is_bound(
    ensemble: MemoryEnsemble,
) -> None:
    config = GcmConfig(ports=Ports(base=0), provider=Provision(use="nobodys"))
    with pytest.raises(ConfigError, match="nobodys"):
        RunningGcm(ensemble, config)


def test_the_second_request_to_stop_does_not_wait_for_goodbyes(ensemble: MemoryEnsemble) -> None:
    running = RunningGcm(ensemble)
    running.gcm.reactor.call_soon(running.gcm.stop)
    running.gcm.reactor.call_soon(running.gcm.stop)
    assert running.gcm.run() == 0
    assert ensemble.names("/candidates") in (None, ())


def test_a_manager_is_born_again_as_it_was() -> None:
    settings = Settings(
        manager=ME, period=5.0, cloud={"cloud.use": True}, registry="a file",
        policies=lambda: {"own", "balanced"}, durability="flush",
    )  # fmt: skip
    given = birth(settings)
    assert given.policies == ["balanced", "own"]
    read = msgspec.msgpack.decode(encode(given), type=KIND.birth)
    machine = KIND.make(read)
    machine.handle(ClusterNamed("c1"), 0.0)
    machine.handle(Elected(1, decode_snapshot({})), 0.0)
    asked = ManagementFrame("peer", bson.encode({"CMD": 2009}), b"u" * 16, 0.0)
    (reply,) = machine.handle(asked, 0.0)
    assert bson.decode(reply.data)["cloud.use"] is True
    assert machine.next_deadline() <= 5.0
