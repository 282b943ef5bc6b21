"""The contract of a provider: what it is asked, what it gives, what it raises.

A provider is a class with its options as a struct beside it; the object is made once, by the
configuration manager that leads, out of `[provider.<name>]` of `gcm.toml`:

    class Rack:
        Options = RackOptions            # a msgspec.Struct with forbid_unknown_fields
        def __init__(self, options): …

What it must hold (`roq.testing.provider_kit` tests all of it against any provider):

* Calls block, and come from several threads at once: one that hangs must not stop the others.
* `create` comes back when the host manager has been started. Registration is the host's own
  business; the caller removes a host that never registers.
* `create` with the name of a host that runs gives that host: the caller repeats it when it does not
  know whether it was done, also after a restart. One that has ended is replaced. If it raises,
  nothing is left behind.
* `list` finds every host of a cluster, also those that another provider object has made (the
  manager before this one), also those that have ended, and never one of another cluster.
* `remove` leaves nothing of the host behind: neither its monitors and exchanges, nor files.
* Hosts outlive the provider object and the process it lives in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol

import msgspec

from roq.errors import InvalidRequest
from roq.model import check_name
from roq.runtime.config import Section

ENTRY_POINTS: Final = "roq.providers"
"""The entry point group under which packages offer providers."""
HANDLE_CHARACTERS_MAX: Final = 512
HOSTS_MAX: Final = 1_000
"""Hosts of one cluster that a provider need be able to list."""


class HostState(StrEnum):
    """What a provider knows of a host it has made."""

    RUNNING = "running"
    """Its host manager has been started and has not ended."""
    ENDED = "ended"
    """Its host manager has ended; the host takes room until it is removed. What it has started may
    still run for a while."""


class HostRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One host that is wanted.

    Raises:
        InvalidName: the cluster or the name has other characters than A-Z a-z 0-9 . _ -
        InvalidRequest: there is no configuration manager or no registry to go to.
    """

    cluster: str
    """Id of the cluster; hosts of other clusters are never touched."""
    name: str
    """Unique in the cluster for ever; the provider's own name for the host, such as of a container.
    The cluster itself knows a host by its address."""
    managers: list[str]
    """Client addresses of the configuration managers, `host:port`."""
    zookeeper: str
    """The registry: `host:port[,host:port…]` of ZooKeeper, or `file:/path` for hosts on the machine
    of the managers."""
    zookeeper_root: str = "/RoQ"
    """Where the cluster is kept in ZooKeeper."""
    taken: list[str] = msgspec.field(default_factory=list)
    """Addresses that hosts of the cluster have, or had until they went away: a new host must not
    get one of them."""
    settings: dict[str, Section] = msgspec.field(default_factory=dict)
    """Sections of `hcm.toml` that the host manager is to have, over the provider's own."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """For people who look at the host from outside, such as the queue that it was made for."""

    def __post_init__(self) -> None:
        check_name(self.cluster, "cluster")
        check_name(self.name, "host")
        if not self.managers or not self.zookeeper:
            raise InvalidRequest(
                f"host {self.name} needs the address of a configuration manager and of the registry"
            )


class ProvidedHost(msgspec.Struct, frozen=True, kw_only=True):
    """One host that a provider has made."""

    name: str
    """As it was requested."""
    host: str
    """The address under which it registers, its name in the cluster; empty if it is not known any
    more (such as of a host that has ended)."""
    handle: str
    """What `remove` takes: at most 512 characters, the same as long as the host exists, also in
    another process."""
    state: HostState = HostState.RUNNING
    created: float = 0.0
    """When, in seconds since 1970."""
    note: str = ""
    """Of a host that has ended: how, with the end of its log if there is one."""


class Provider(Protocol):
    """Makes and removes hosts. Safe to call from several threads at once."""

    def create(self, request: HostRequest) -> ProvidedHost:
        """Start a host and give it back once its host manager has been started.

        Raises:
            ProviderFailed: it cannot be made; nothing is left of it.
            NoMoreHosts: the provider has given all it may; one must be removed first.
        """
        ...

    def list(self, cluster: str) -> list[ProvidedHost]:
        """All hosts of a cluster, by name.

        Raises:
            ProviderFailed: it cannot be told.
        """
        ...

    def remove(self, handle: str) -> None:
        """Stop a host and leave nothing of it behind; one that is gone already is fine.

        Its host manager is asked to stop first (it stops its monitors and exchanges), and killed
        with all of them when that takes too long.

        Raises:
            ProviderFailed: it may still be there; to be repeated.
        """
        ...

    def close(self) -> None:
        """Give back what this object holds, such as connections; the hosts stay. Idempotent."""
        ...
