"""What every provider of hosts must hold, as tests: subclass it, and pytest runs them all.

    from roq.provider.port import Provider
    from roq.testing.provider_kit import ProviderKit

    class TestRack(ProviderKit):
        def open(self) -> Provider:               # called several times: another object for the
            return Rack(RackOptions(slots=4))     # same place, as after a restart

The other methods below say what the kit cannot know; each has a default. The kit asks for hosts of
clusters that do not exist, so a host manager finds nobody, and waits; only the last test wants a
cluster that runs. All hosts of these clusters are removed after each test.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final

import msgspec
import pytest

from roq.errors import ConfigError, InvalidName, ProviderFailed
from roq.provider.port import (
    HANDLE_CHARACTERS_MAX,
    HostRequest,
    HostState,
    ProvidedHost,
    Provider,
)
from roq.runtime.config import convert
from roq.testing.running import RunningCluster

NOBODY: Final = "127.0.0.1:9"
"""Nobody answers there."""
PATIENCE_SECONDS: Final = 60.0
HOSTILE_HANDLES: Final = (
    "", "unknown", "a/b", "../../etc", "/", "..", "a/..", "x" * 600, "\x00", "-f", "é", "0" * 64,
)  # fmt: skip


class ProviderKit:
    """The contract of `roq.provider.port`, test by test.

    Attributes:
        chooses_addresses: the provider itself chooses the addresses of hosts; then it must keep
            away from those that are taken.
        bad_options: tables that its `Options` must refuse, besides an unknown key.
    """

    chooses_addresses: ClassVar[bool] = True
    bad_options: ClassVar[Sequence[Mapping[str, object]]] = ()

    # --- what the kit must be told ----------------------------------------------------------------

    def open(self) -> Provider:
        """Another provider object for the same place; the kit closes it."""
        raise NotImplementedError

    def end(self, host: ProvidedHost) -> None:
        """Let the host manager of this host crash."""
        pytest.skip("the kit was not told how a host ends: override `end`")

    def traces(self, host: ProvidedHost) -> list[str]:
        """What is left of a host that was removed, such as processes and files, in words."""
        return []

    def running(self) -> RunningCluster:
        """A cluster that hosts can join."""
        pytest.skip("the kit was given no cluster: override `running`")

    # --- for the tests ----------------------------------------------------------------------------

    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        self.cluster = f"kit-{uuid.uuid4().hex[:12]}"
        self._opened: list[Provider] = []
        yield
        cleaner = self.another()
        for cluster in (self.cluster, f"{self.cluster}-2"):
            for host in cleaner.list(cluster):
                cleaner.remove(host.handle)
        for provider in self._opened:
            provider.close()

    @property
    def provider(self) -> Provider:
        """The provider object of this test."""
        return self._opened[0] if self._opened else self.another()

    def another(self) -> Provider:
        """A further provider object, closed after the test."""
        provider = self.open()
        self._opened.append(provider)
        return provider

    def request(self, name: str = "one", **changes: object) -> HostRequest:
        """A host of a cluster that does not exist; its manager waits for it for a long time."""
        plain = HostRequest(
            cluster=self.cluster,
            name=name,
            managers=[NOBODY],
            zookeeper=NOBODY,
            settings={"zk": {"connect_seconds": 600.0}},
        )
        return msgspec.structs.replace(plain, **changes)

    def listed(self, provider: Provider | None = None) -> dict[str, ProvidedHost]:
        """What a provider lists, by name."""
        return {host.name: host for host in (provider or self.provider).list(self.cluster)}

    def ended(self, name: str) -> ProvidedHost | None:
        """The host of this name, once it has ended; None if it is gone by then."""
        _wait(lambda: name not in self.listed() or self.listed()[name].state is HostState.ENDED)
        return self.listed().get(name)

    # --- a host -----------------------------------------------------------------------------------

    def test_a_host_is_what_was_asked_for(self) -> None:
        before = time.time()
        host = self.provider.create(self.request())
        assert host.name == "one"
        assert host.host
        assert 0 < len(host.handle) <= HANDLE_CHARACTERS_MAX
        assert host.state is HostState.RUNNING
        assert before - 60 < host.created < time.time() + 60
        assert self.listed() == {"one": host}

    def test_two_hosts_are_two(self) -> None:
        one, two = (self.provider.create(self.request(name)) for name in ("one", "two"))
        assert one.handle != two.handle
        assert one.host != two.host
        assert [host.name for host in self.provider.list(self.cluster)] == ["one", "two"]

    def test_hosts_made_at_the_same_time_are_different_ones(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            requests = [self.request(name) for name in ("one", "two", "three")]
            hosts = list(pool.map(self.provider.create, requests))
        assert len({host.host for host in hosts}) == 3
        assert len({host.handle for host in hosts}) == 3

    def test_a_name_asked_for_again_is_the_same_host(self) -> None:
        host = self.provider.create(self.request())
        assert self.provider.create(self.request()).handle == host.handle
        assert self.another().create(self.request()).handle == host.handle
        assert self.listed() == {"one": host}

    def test_a_host_keeps_away_from_addresses_that_are_taken(self) -> None:
        if not self.chooses_addresses:
            pytest.skip("addresses are given by the engine")
        host = self.provider.create(self.request())
        self.provider.remove(host.handle)
        assert self.provider.create(self.request(taken=[host.host])).host != host.host

    # --- after a restart --------------------------------------------------------------------------

    def test_hosts_outlive_the_provider_object_and_are_found_by_another(self) -> None:
        host = self.provider.create(self.request())
        self.provider.close()
        self.provider.close()
        another = self.another()
        assert self.listed(another) == {"one": host}
        another.remove(host.handle)
        assert self.listed(self.another()) == {}

    def test_hosts_of_another_cluster_are_not_seen(self) -> None:
        request = self.request()
        stranger = msgspec.structs.replace(request, cluster=f"{self.cluster}-2")
        mine, other = self.provider.create(request), self.provider.create(stranger)
        assert mine.handle != other.handle
        assert self.listed() == {"one": mine}
        self.provider.remove(mine.handle)
        assert self.provider.list(stranger.cluster) == [other]

    # --- removal ----------------------------------------------------------------------------------

    def test_a_removed_host_leaves_nothing(self) -> None:
        keep, gone = (self.provider.create(self.request(name)) for name in ("keep", "gone"))
        self.provider.remove(gone.handle)
        assert self.listed() == {"keep": keep}
        assert self.traces(gone) == []

    def test_a_host_can_be_removed_again(self) -> None:
        host = self.provider.create(self.request())
        for _ in range(2):
            self.provider.remove(host.handle)
        assert self.listed() == {}

    def test_a_host_removed_twice_at_once_is_removed(self) -> None:
        host = self.provider.create(self.request())
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.provider.remove, [host.handle] * 2))
        assert self.listed() == {}

    @pytest.mark.parametrize("handle", HOSTILE_HANDLES)
    def test_a_handle_of_no_host_removes_nothing(self, handle: str) -> None:
        self.provider.remove(handle)

    # --- a host that ends by itself ---------------------------------------------------------------

    def test_a_host_that_has_ended_is_listed_as_such_until_it_is_removed(self) -> None:
        host = self.provider.create(self.request())
        self.end(host)
        found = self.ended("one")
        assert found is not None
        assert found.note
        self.provider.remove(found.handle)
        assert self.listed() == {}
        assert self.traces(host) == []

    def test_a_host_that_has_ended_is_replaced(self) -> None:
        self.end(self.provider.create(self.request()))
        self.ended("one")
        assert self.provider.create(self.request()).state is HostState.RUNNING
        assert [host.state for host in self.listed().values()] == [HostState.RUNNING]

    # --- bad input --------------------------------------------------------------------------------

    def test_a_host_that_cannot_start_is_cleaned_up_or_listed_as_ended(self) -> None:
        bad = self.request(settings={"exchange": {"no_such_setting": 1}})
        try:
            self.provider.create(bad)
        except ProviderFailed as error:
            assert str(error)
            assert self.listed() == {}
            return
        found = self.ended("one")
        assert found is not None
        assert "no_such_setting" in found.note

    def test_a_request_that_failed_can_be_made_again(self) -> None:
        try:
            self.provider.create(self.request(settings={"exchange": {"no_such_setting": 1}}))
        except ProviderFailed:
            assert self.listed() == {}
        else:
            self.ended("one")
        assert self.provider.create(self.request()).state is HostState.RUNNING

    @pytest.mark.parametrize("cluster", ["", "..", "*", "a/b", "a b"])
    def test_a_cluster_that_cannot_be_is_refused(self, cluster: str) -> None:
        with pytest.raises(InvalidName):
            self.provider.list(cluster)

    def test_options_that_it_does_not_know_are_refused(self) -> None:
        options = type(self.provider).Options  # type: ignore[attr-defined]
        for table in ({"no_such_option": 1}, *self.bad_options):
            with pytest.raises(ConfigError, match=r"gcm\.toml: provider\.kit"):
                convert(options, table, source="gcm.toml", section="provider.kit")

    # --- in a cluster -----------------------------------------------------------------------------

    def test_a_host_joins_the_cluster_and_serves(self) -> None:
        running = self.running()
        request = HostRequest(
            cluster=self.cluster, name="one", managers=[running.address],
            zookeeper=running.registry,
        )  # fmt: skip
        queue = f"{self.cluster}-queue"
        with running.connect() as cluster:
            before = {(each.host, each.epoch) for each in cluster.hosts()}
            host = self.provider.create(request)
            # A killed host of the same address may still be in the registry.
            _wait(
                lambda: any(
                    each.host == host.host
                    and each.state == "live"
                    and (each.host, each.epoch) not in before
                    for each in cluster.hosts()
                )
            )
            cluster.create_queue(queue, host=host.host, durability="none")
            with cluster.subscriber(queue) as subscriber, cluster.publisher(queue) as publisher:
                publisher.publish(b"here")
                message = subscriber.receive(timeout=PATIENCE_SECONDS)
                assert message is not None
                assert message.payload == b"here"
            cluster.remove_queue(queue)
        self.provider.remove(host.handle)
        assert self.traces(host) == []


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to this in time"
        threading.Event().wait(0.05)
