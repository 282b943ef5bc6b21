"""`docker`: a host is a container of a Docker Engine with one host manager in it.

What a container is for stands in its labels, so a later configuration manager finds it again:

    roq.cluster   id of the cluster          roq.host      name of the host, as requested
    roq.address   with `network = "host"`: its loopback address

On a bridge (the usual way) a container has an address of its own, which it advertises; with the
network of the machine (`host`) it gets a loopback address, like the hosts of the provider `local`.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from datetime import datetime
from typing import Annotated, Final

import msgspec

from roq.coordination.addresses import FILE
from roq.errors import ConfigError, ProviderFailed
from roq.model import check_name
from roq.provider import image
from roq.provider.configuration import Sections, host_configuration
from roq.provider.engine import Container, ContainerSpec, Engine
from roq.provider.loopback import Addresses
from roq.provider.port import HostRequest, HostState, ProvidedHost
from roq.runtime.config import Section

CLUSTER_LABEL: Final = "roq.cluster"
HOST_LABEL: Final = "roq.host"
ADDRESS_LABEL: Final = "roq.address"
HOST_NETWORK: Final = "host"
INTERFACE: Final = "eth0"
"""What the network of a container is called inside."""
COMMAND: Final = ["-m", "roq.hcm", "--config", f"{image.SETTINGS}/hcm.toml"]
"""Arguments for the Python that is the entry point of the image."""
ADDRESS_SECONDS: Final = 5.0
MB: Final = 1024 * 1024
_RUNNING: Final = frozenset({"running", "paused", "restarting"})

log = logging.getLogger(__name__)


class DockerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[provider.docker]` of `gcm.toml`."""

    url: str = ""
    """The engine, `unix:///path` or `tcp://host:port`; empty: DOCKER_HOST, or the usual socket."""
    image: Annotated[str, msgspec.Meta(min_length=1)] = "roq-host:latest"
    """Made by `scripts/docker_image.py`; the engine must have it."""
    network: Annotated[str, msgspec.Meta(min_length=1)] = "bridge"
    """A network of the engine, or `host`: that of the machine."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=16_777_216)] = 0
    """Memory of a host, without swap; 0: no limit."""
    cpus: Annotated[float, msgspec.Meta(ge=0, le=4_096)] = 0.0
    """CPUs of a host, such as 1.5; 0: no limit."""
    pids_max: Annotated[int, msgspec.Meta(ge=0, le=4_194_304)] = 0
    """Threads and processes of a host; 0: no limit."""
    managers: list[str] = msgspec.field(default_factory=list)
    """Client addresses of the configuration managers as containers reach them; empty: as the
    managers know themselves."""
    zookeeper: str = ""
    """The same for ZooKeeper."""
    first_address: str = "127.0.0.2"
    last_address: str = "127.0.0.250"
    """With `network = "host"`: hosts get the loopback addresses from the first to the last."""
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 30.0
    """A request that the engine does not answer within this has failed."""
    stop_seconds: Annotated[float, msgspec.Meta(ge=0, le=600)] = 10.0
    """Between asking a host manager to stop and killing its container."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Further labels for all containers."""
    hcm: dict[str, Section] = msgspec.field(default_factory=dict)
    """Sections of `hcm.toml` for all hosts, such as `[provider.docker.hcm.exchange]`."""

    def __post_init__(self) -> None:
        Addresses(self.first_address, self.last_address)


class DockerProvider:
    """Starts and removes containers. Holds no connection between two calls."""

    Options = DockerOptions

    def __init__(self, options: DockerOptions) -> None:
        self._options = options
        self._engine = Engine(options.url, options.timeout_seconds)
        self._addresses = Addresses(options.first_address, options.last_address)
        self._choosing = threading.Lock()

    def create(self, request: HostRequest) -> ProvidedHost:
        """Start a container and give it back.

        Raises:
            ProviderFailed: no image, no engine, an address that a container cannot reach, …; says
                what to do.
            NoMoreHosts: there is no free loopback address.
        """
        name = container_name(request.cluster, request.name)
        request = self._reachable(request)
        found = self._engine.find(name)
        if found is not None and found.status in _RUNNING:
            return self._describe(found)
        if found is not None:
            self._engine.remove(found.id, 0.0)
        made = self._make(name, request)
        try:
            return self._start(made, request)
        except BaseException:
            self._clean_up(made)
            raise

    def list(self, cluster: str) -> list[ProvidedHost]:
        """All containers of a cluster, by name of the host."""
        check_name(cluster, "cluster")
        found = self._engine.labelled({CLUSTER_LABEL: cluster, HOST_LABEL: ""})
        return sorted(map(self._describe, found), key=lambda host: host.name)

    def remove(self, handle: str) -> None:
        """Stop a container and remove it with everything in it.

        Raises:
            ProviderFailed: it may still be there, or it is not one of ours.
        """
        if not handle.isascii() or not handle.isalnum():
            return  # the engine never gave such an id
        found = self._engine.find(handle)
        if found is None:
            return
        if HOST_LABEL not in found.labels:
            raise ProviderFailed(f"the container {found.name} is no host of RoQ and stays")
        self._engine.remove(found.id, self._options.stop_seconds)

    def close(self) -> None:
        """Nothing is held."""

    # --- a host begins ----------------------------------------------------------------------------

    def _reachable(self, request: HostRequest) -> HostRequest:
        """The same request with the addresses that hold inside a container.

        Raises:
            ProviderFailed: nobody can reach them from there.
        """
        managers = self._options.managers or request.managers
        zookeeper = self._options.zookeeper or request.zookeeper
        if zookeeper.startswith(FILE):
            raise ProviderFailed(
                f"a container cannot use the registry {zookeeper.removeprefix(FILE)}: it is for "
                "processes of one machine. Use ZooKeeper for a cluster with containers"
            )
        if self._options.network != HOST_NETWORK:
            for address in (*managers, *zookeeper.split(",")):
                if _is_loopback(address):
                    raise ProviderFailed(
                        f"a container on the network {self._options.network} cannot reach "
                        f"{address}, a loopback address: bind and advertise an address of the "
                        "network (network.bind, network.advertise of gcm.toml; the address of "
                        "docker0 is enough), name others in provider.docker.managers and "
                        'provider.docker.zookeeper, or set provider.docker.network = "host"'
                    )
        return msgspec.structs.replace(request, managers=managers, zookeeper=zookeeper)

    def _make(self, name: str, request: HostRequest) -> Container:
        options = self._options
        if not self._engine.has_image(options.image):
            raise ProviderFailed(
                f"the Docker Engine has no image {options.image}: make it with "
                "scripts/docker_image.py, or name another one in provider.docker.image"
            )
        with self._choosing:  # an address is taken once it stands on a container
            labels = {**options.labels, **request.labels, **self._labels(request)}
            made = self._engine.make(
                ContainerSpec(
                    name=name,
                    image=options.image,
                    command=COMMAND,
                    labels=labels,
                    network=options.network,
                    memory_bytes=options.memory_mb * MB,
                    cpus=options.cpus,
                    pids_max=options.pids_max,
                )
            )
        if made is None:
            raise ProviderFailed(
                f"another container is called {name}: another program makes this host just now, or "
                f"it is not ours (`docker rm {name}` removes it); try again"
            )
        return made

    def _labels(self, request: HostRequest) -> dict[str, str]:
        labels = {CLUSTER_LABEL: request.cluster, HOST_LABEL: request.name}
        if self._options.network == HOST_NETWORK:
            others = self._engine.labelled({ADDRESS_LABEL: ""})
            taken = {each.labels[ADDRESS_LABEL] for each in others}
            labels[ADDRESS_LABEL] = self._addresses.choose({*taken, *request.taken})
        return labels

    def _start(self, made: Container, request: HostRequest) -> ProvidedHost:
        usual, place = _place(made.labels.get(ADDRESS_LABEL, ""))
        try:
            text = host_configuration(request, usual=usual, wanted=self._options.hcm, place=place)
        except ConfigError as error:
            raise ProviderFailed(f"host {request.name} cannot be configured: {error}") from error
        self._engine.put(made.id, image.SETTINGS, {"hcm.toml": text})
        self._engine.start(made.id)
        return self._with_address(made)

    def _with_address(self, made: Container) -> ProvidedHost:
        """Wait until the engine has given the container its address."""
        deadline = time.monotonic() + ADDRESS_SECONDS
        while True:
            found = self._engine.find(made.id)
            if found is None:
                raise ProviderFailed(f"the container {made.name} was removed by another program")
            host = self._describe(found)
            if host.state is HostState.ENDED:
                raise ProviderFailed(f"the container {made.name} has ended at once: {host.note}")
            if host.host:
                return host
            if time.monotonic() > deadline:
                raise ProviderFailed(
                    f"the container {made.name} has no IPv4 address on the network "
                    f"{self._options.network}: see `docker network inspect`"
                )
            threading.Event().wait(0.05)

    def _clean_up(self, made: Container) -> None:
        try:
            self._engine.remove(made.id, 0.0)
        except ProviderFailed as error:
            # The first failure is the one to tell; `list` shows what is left.
            log.warning("a container is left: %s", error, extra={"event": "container_left"})

    # --- what a host is ---------------------------------------------------------------------------

    def _describe(self, container: Container) -> ProvidedHost:
        running = container.status in _RUNNING
        address = container.labels.get(ADDRESS_LABEL) or next(
            iter(container.addresses.values()), ""
        )
        return ProvidedHost(
            name=container.labels.get(HOST_LABEL, container.name),
            host=address,
            handle=container.id,
            state=HostState.RUNNING if running else HostState.ENDED,
            created=datetime.fromisoformat(container.created).timestamp(),
            note="" if running else self._end(container),
        )

    def _end(self, container: Container) -> str:
        words = self._engine.last_words(container.id)
        told = [
            f"its container is {container.status}, exit code {container.exit_code}",
            container.error,
            f"the end of its log:\n{words}" if words else "",
        ]
        return "; ".join(filter(None, told))


def container_name(cluster: str, name: str) -> str:
    """What the container of a host is called."""
    return f"roq-{cluster}-{name}"


def _place(address: str) -> tuple[Sections, Sections]:
    """Usual settings and place of a host in a container, at a loopback address if it has one."""
    data: Section = {"dir": image.DATA}
    if not address:
        own: Section = {"interface": INTERFACE, "bind": "", "advertise": ""}
        return {}, {"network": own, "data": data}
    free: Section = {"base_port": 0}
    usual: Sections = {
        "network": {"port": 0}, "monitor": free, "statmonitor": free, "exchange": free
    }  # fmt: skip
    loopback: Section = {"interface": "", "bind": address, "advertise": address}
    return usual, {"network": loopback, "data": data}


def _is_loopback(address: str) -> bool:
    host = address.removeprefix("tcp://").strip().rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in {"", "localhost"}
