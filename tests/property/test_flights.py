"""What a machine was told is the whole of what it decides by: a new one decides the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fuzz
import monitor_driver
import pytest
from gcm_script import PaperHost, Script
from hcm_host import Host
from monitor_driver import Driver
from recorded import data_of, flights_of, recorded

from roq.cli.replay import replay
from roq.coordination.registry_contract import RegistryDenied
from roq.gcm import events
from roq.monitor import machine as monitors
from roq.runtime import plugins
from roq.runtime.rpc_connections import NotReached

ROUNDS = 40


@pytest.mark.parametrize("target", ["monitor", "manager", "host", "registry"])
def test_a_new_machine_does_the_same(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_driver, "own_policy", plugins.policy)  # as in a daemon
    events_seen = 0
    for seed in range(ROUNDS):
        with recorded() as recorders:
            fuzz.one_round(target, seed)
        for flight in flights_of(recorders):
            assert replay(flight) is None
            events_seen += len(flight[2])
    assert events_seen > ROUNDS


def lives() -> None:
    """A queue comes and goes, hosts are lost, children crash, a monitor is replaced."""
    script = Script(PaperHost("h1"), PaperHost("h2"), PaperHost("h3"))
    script.live(2.0)
    for name in ("orders", "bills", "trades"):
        script.send(2003, QName=name, Host="h1")
        script.settle()
    script.live(3.0)
    script.vanish("h1")
    script.expire_node("h1")
    script.live(30.0)
    script.feed(events.CommitFailed(10_000, RegistryDenied("gone")))
    script.feed(events.RegistryLost())
    script.come_back("h1")
    script.live(5.0)
    host = Host(share=3)
    host.running("a.monitor", "b.monitor", "a.x1", "a.x2", "b.x1")
    host.advance(3.0)
    host.leader(NotReached("no answer"))
    host.crash("a.x1")
    host.advance(20.0)
    host.next_life()
    host.advance(20.0)
    host.stop(drain=True)
    host.advance(60.0)
    monitor = Driver()
    for number in (1, 2, 3):
        monitor.report(number)
    monitor.leader_names(1, 2, 3)
    for name in ("p", "q", "r"):
        monitor.attach(name)
        monitor.join(f"s{name}")
    monitor.advance(5.0, (1, 1), (2, 1))
    monitor.take_over()
    monitor.advance(10.0, (1, 1), (2, 1))
    monitor.stop("removed")


def test_it_does_so_in_another_process_where_sets_have_another_order(tmp_path: Path) -> None:
    with recorded() as recorders:
        lives()
    path = tmp_path / "lives.flight"
    path.write_bytes(data_of(recorders))
    for seed in ("1", "2", "3"):
        command = [sys.executable, "-m", "roq", "debug", "replay", str(path)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("the same effects") == len(recorders) >= 5


def test_a_machine_that_decides_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded() as recorders:
        monitor = Driver()
        monitor.report(1)
        monitor.join("s")
        monitor.advance(3.0)
    (flight,) = flights_of(recorders)
    assert replay(flight) is None
    monkeypatch.setattr(monitors, "VERSION_SECONDS", 0.1)
    found = replay(flight)
    assert found is not None
    assert found.replayed != found.recorded
