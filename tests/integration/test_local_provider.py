"""Hosts as processes of this machine: the contract, and what else can happen to them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from waiting import eventually

from roq.provider.local import LocalOptions, LocalProvider
from roq.provider.port import HostRequest, HostState, ProvidedHost, Provider
from roq.provider.process import identify, working_in
from roq.provider.record import HostFolder, HostRecord
from roq.testing.provider_kit import NOBODY, ProviderKit
from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

FIRST, LAST = "127.0.8.1", "127.0.8.20"


def options(folder: Path, **changes: object) -> LocalOptions:
    plain = LocalOptions(
        data_dir=str(folder), first_address=FIRST, last_address=LAST, start_seconds=60.0
    )
    return msgspec.structs.replace(plain, **changes)


def request(name: str = "one", **changes: object) -> HostRequest:
    plain = HostRequest(
        cluster="c", name=name, managers=[NOBODY], zookeeper=NOBODY,
        settings={"zk": {"connect_seconds": 600.0}},
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LocalProvider]:
    made = LocalProvider(options(tmp_path))
    yield made
    for host in made.list("c"):
        made.remove(host.handle)
    assert working_in(tmp_path) == []


def manager_of(folder: Path, host: ProvidedHost) -> int:
    record = HostFolder(folder, *host.handle.split("/")).read()
    assert record is not None
    assert record.process is not None
    return record.process.pid


class TestLocalProvider(ProviderKit):
    bad_options: ClassVar = (
        {"data_dir": ""}, {"first_address": "10.0.0.1"}, {"last_address": "127.0.0.1"},
        {"start_seconds": 0}, {"stop_seconds": "long"}, {"hcm": {"exchange": 3}},
    )  # fmt: skip

    @pytest.fixture(autouse=True)
    def _here(self, roq_cluster: RunningCluster, tmp_path: Path) -> Iterator[None]:
        self.folder, self._running = tmp_path, roq_cluster
        yield
        assert working_in(tmp_path) == []

    def open(self) -> Provider:
        return LocalProvider(options(self.folder))

    def running(self) -> RunningCluster:
        return self._running

    def end(self, host: ProvidedHost) -> None:
        os.kill(manager_of(self.folder, host), signal.SIGKILL)

    def traces(self, host: ProvidedHost) -> list[str]:
        folder = self.folder / host.handle
        return [*map(str, working_in(folder)), *([str(folder)] if folder.exists() else [])]


def test_a_killed_host_manager_leaves_no_exchange_behind(
    provider: LocalProvider, tmp_path: Path, roq_cluster: RunningCluster
) -> None:
    with roq_cluster.connect() as cluster:
        # A host of another test, killed at the same address, may still be in the registry.
        before = {(each.host, each.epoch) for each in cluster.hosts()}
        host = provider.create(
            request(managers=[roq_cluster.address], zookeeper=roq_cluster.registry, settings={})
        )
        eventually(
            lambda: any(
                each.host == host.host
                and each.state == "live"
                and (each.host, each.epoch) not in before
                for each in cluster.hosts()
            )
        )
        cluster.create_queue("left-behind", host=host.host)
    os.kill(manager_of(tmp_path, host), signal.SIGKILL)
    assert len(working_in(tmp_path)) >= 2
    provider.remove(host.handle)
    assert working_in(tmp_path) == []
    with roq_cluster.connect() as cluster:
        cluster.remove_queue("left-behind")


def test_a_process_that_has_got_the_pid_of_a_host_is_left_alone(
    provider: LocalProvider, tmp_path: Path
) -> None:
    host = provider.create(request())
    folder = HostFolder(tmp_path, "c", "one")
    record = folder.read()
    assert record is not None
    os.kill(manager_of(tmp_path, host), signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        taken = identify(stranger.pid)
        assert taken is not None
        assert record.process is not None
        folder.write(
            msgspec.structs.replace(
                record, process=msgspec.structs.replace(record.process, pid=taken.pid)
            )
        )
        assert provider.list("c")[0].state is HostState.ENDED
        provider.remove(host.handle)
        assert stranger.poll() is None
        stranger.kill()


def test_a_host_whose_maker_was_interrupted_is_found(
    provider: LocalProvider, tmp_path: Path
) -> None:
    """Between starting the process and writing down which it is."""
    host = provider.create(request())
    folder = HostFolder(tmp_path, "c", "one")
    record = folder.read()
    assert record is not None
    folder.write(msgspec.structs.replace(record, process=None))
    assert provider.list("c") == [host]
    assert provider.create(request()) == host
    provider.remove(host.handle)
    assert working_in(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", '{"address": 1}', '{"process": {"pid": -1}}'])
def test_a_record_that_makes_no_sense_is_a_host_to_be_removed(
    provider: LocalProvider, tmp_path: Path, text: str
) -> None:
    provider.create(request())
    folder = HostFolder(tmp_path, "c", "one")
    (folder.path / "host.json").write_text(text)
    (found,) = provider.list("c")
    assert found.state is HostState.ENDED
    assert "cannot be read" in found.note
    provider.remove(found.handle)
    assert working_in(tmp_path) == []
    assert not (tmp_path / "c").exists()


def test_a_host_survives_the_process_that_made_it(provider: LocalProvider, tmp_path: Path) -> None:
    code = (
        "import sys, msgspec;"
        "from roq.provider.local import LocalOptions, LocalProvider;"
        "from roq.provider.port import HostRequest;"
        "p = LocalProvider(msgspec.json.decode(sys.argv[1], type=LocalOptions));"
        "print(p.create(msgspec.json.decode(sys.argv[2], type=HostRequest)).handle)"
    )
    arguments = [msgspec.json.encode(each).decode() for each in (options(tmp_path), request())]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    (host,) = provider.list("c")
    assert host.handle == done.stdout.strip()
    assert host.state is HostState.RUNNING


def test_a_record_knows_the_address_that_is_reserved(
    provider: LocalProvider, tmp_path: Path
) -> None:
    HostFolder(tmp_path, "another", "one").write(HostRecord(address=FIRST, created=1.0))
    assert provider.create(request()).host == "127.0.8.2"
