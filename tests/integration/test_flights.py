"""What daemons did last: asked of real ones under load, and replayed."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from gcm_process import RunningGcm
from processes import processes

from roq.cli.commands import cli
from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.errors import ConfigError
from roq.gcm.events import Subscribed
from roq.hcm.config import Data, HcmConfig, Network
from roq.hcm.daemon import HostManager
from roq.runtime.flight import FOLDER, KILOBYTES, read
from roq.testing import cluster

pytestmark = pytest.mark.integration
SECRET = b"a payload that nobody else shall read"


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "flights"))
    monkeypatch.setenv(KILOBYTES, "65536")
    return tmp_path / "flights"


def roq(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["debug", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_daemons_write_down_what_they_did_and_new_ones_do_the_same(flights: Path) -> None:
    with cluster(hosts=2) as running, running.connect() as there:
        for queue in ("orders", "bills"):
            there.create_queue(queue)
        there.add_exchange("orders")
        with there.subscriber("orders", [""]) as subscriber, there.publisher("orders") as publisher:
            for number in range(50):
                publisher.publish(SECRET, "t", key="key-of-a-message")
                if number == 25:
                    exchange = next(processes(running.folder, "orders.x1"))
                    exchange.send_signal(signal.SIGKILL)
            publisher.flush()
            assert subscriber.receive(10.0) is not None
        there.remove_queue("bills")
        monitors = next(processes(running.folder, "orders.monitor")).pid
        pids = {running.pid("gcm"), running.pid("host 127.0.0.1"), monitors}
        paths = [roq("record", str(pid)).strip() for pid in sorted(pids)]
        # Once more: the daemon goes on, and the file is a new one.
        before = Path(paths[0]).stat().st_mtime_ns
        roq("record", str(min(pids)))
        assert Path(paths[0]).stat().st_mtime_ns > before
    assert {Path(path).parent for path in paths} == {flights}
    told = [header for path in paths for header, _, _ in read(Path(path))]
    assert {header.kind for header in told} == {"gcm", "host", "monitor"}
    assert "orders.monitor" in {header.name for header in told}
    for path in paths:
        assert SECRET not in Path(path).read_bytes()
        assert b"key-of-a-message" not in Path(path).read_bytes()
        assert "the same effects" in roq("replay", path)
        assert roq("show", path).count("\n") > 10


def fails(*_: object) -> None:
    raise ValueError("seven")


def test_a_configuration_manager_that_crashes_writes_it_down(
    flights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcm = RunningGcm(MemoryEnsemble()).gcm
    gcm.reactor.call_soon(lambda: monkeypatch.setattr(gcm.machine, "handle", fails))
    gcm.reactor.call_soon(lambda: gcm._feed(Subscribed()))
    with pytest.raises(ValueError, match="seven"):
        gcm.run()
    (path,) = flights.iterdir()
    assert path.name == f"gcm.{os.getpid()}.crash.flight"
    [(_, _, records)] = read(path)
    assert (records[-1].event, records[-1].raised) == ("Subscribed", "ValueError: seven")
    assert "→ raises ValueError: seven" in roq("show", str(path))


def test_a_host_manager_that_crashes_writes_it_down(
    flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = HcmConfig(network=Network(port=0), data=Data(dir=str(tmp_path / "data")))
    manager = HostManager(config, partial(MemoryRegistry, MemoryEnsemble("c1")))
    manager.reactor.call_soon(lambda: monkeypatch.setattr(manager._machine, "handle", fails))
    manager.reactor.call_soon(manager.drain)
    try:
        with pytest.raises(ValueError, match="seven"):
            manager.run()
    finally:
        manager.close()
    (path,) = flights.iterdir()
    assert path.name == f"host.{os.getpid()}.crash.flight"
    assert read(path)[0][2][-1].raised == "ValueError: seven"


def test_an_amount_that_is_none_is_a_wrong_configuration(
    flights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILOBYTES, "much")
    config = HcmConfig(network=Network(port=0), data=Data(dir=str(tmp_path / "data")))
    with pytest.raises(ConfigError, match="ROQ_FLIGHT_KB"):
        HostManager(config, partial(MemoryRegistry, MemoryEnsemble("c1")))
    with pytest.raises(ConfigError, match="ROQ_FLIGHT_KB"):
        RunningGcm(MemoryEnsemble())
    assert not flights.exists()
