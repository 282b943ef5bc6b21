"""A Docker Engine, as far as hosts need one; the only module that knows the `docker` package.

It speaks to the engine in plain values, and every failure is a ProviderFailed that says what was
wanted and what to do.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import requests

from roq.errors import ConfigError, ProviderFailed

try:
    import docker
    from docker.errors import APIError, DockerException, ImageNotFound, NotFound
    from docker.types import LogConfig
except ImportError as error:  # pragma: no cover - the extra is installed wherever tests run
    raise ConfigError(
        "the provider docker needs the package of that name: pip install 'roq-cluster[docker]'"
    ) from error

LOG_LINES: Final = 8
LOG_CHARACTERS_MAX: Final = 2_048
CONFLICT: Final = 409
_ANY_VERSION: Final = "1.41"
"""Not sent: the question for the version of the engine is the same in all versions."""
_LOG_BOUNDS: Final = {"max-size": "4m", "max-file": "2"}


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A container that is wanted."""

    name: str
    image: str
    command: list[str]
    labels: dict[str, str]
    network: str
    memory_bytes: int = 0
    """0: no limit."""
    cpus: float = 0.0
    """0: no limit."""
    pids_max: int = 0
    """0: no limit."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container as the engine describes it."""

    id: str
    name: str
    labels: dict[str, str]
    status: str
    """The engine's word: `created`, `running`, `exited`, …"""
    created: str
    """When, as ISO 8601."""
    addresses: dict[str, str]
    """Network → its IPv4 address there; empty while it does not run."""
    exit_code: int
    error: str
    """Why it could not be started."""


class Engine:
    """One engine.

    Args:
        url: `unix:///path`, `tcp://host:port`; empty: what DOCKER_HOST says, else the usual socket.
        timeout_seconds: a request that is not answered within this has failed.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout = timeout_seconds

    def has_image(self, name: str) -> bool:
        """Whether the engine has this image."""
        with self._asked(f"look for the image {name}") as client:
            try:
                client.images.get(name)
            except ImageNotFound:
                return False
            return True

    def import_image(self, archive: Path, name: str, tags: list[str], changes: list[str]) -> None:
        """Make an image out of a root filesystem (a tar archive) and give it these tags.

        Args:
            changes: instructions of a Dockerfile that say how it is run.
        """
        with self._asked(f"import the image {name}") as client:
            client.api.import_image_from_file(
                str(archive), repository=name, tag=tags[0], changes=changes
            )
        for tag in tags[1:]:
            self.tag(f"{name}:{tags[0]}", name, tag)

    def tag(self, image: str, name: str, tag: str) -> None:
        """Give an image another tag."""
        with self._asked(f"tag the image {image} as {name}:{tag}") as client:
            client.api.tag(image, name, tag, force=True)

    def make(self, spec: ContainerSpec) -> Container | None:
        """Make a container without starting it; None if there is one of that name."""
        limits: dict[str, object] = {}
        if spec.memory_bytes:
            limits |= {"mem_limit": spec.memory_bytes, "memswap_limit": spec.memory_bytes}
        if spec.cpus:
            limits["nano_cpus"] = round(spec.cpus * 1e9)
        if spec.pids_max:
            limits["pids_limit"] = spec.pids_max
        with self._asked(f"make the container {spec.name}") as client:
            try:
                made = client.containers.create(
                    spec.image,
                    spec.command,
                    name=spec.name,
                    labels=spec.labels,
                    network=spec.network,
                    restart_policy={"Name": "no"},
                    # The first process of a container hears no signal that it has no handler for.
                    init=True,
                    log_config=LogConfig(type="json-file", config=_LOG_BOUNDS),
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges"],
                    **limits,
                )
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                return None
            made.reload()
            return _described(made.attrs)

    def put(self, container: str, folder: str, files: Mapping[str, str]) -> None:
        """Write text files into a folder of a container, which need not run."""
        with self._asked(f"write into the container {container}") as client:
            client.containers.get(container).put_archive(folder, _tar(files))

    def start(self, container: str) -> None:
        """Start a container."""
        with self._asked(f"start the container {container}") as client:
            client.containers.get(container).start()

    def find(self, container: str) -> Container | None:
        """A container by id or name; None if there is none."""
        with self._asked(f"look at the container {container}") as client:
            try:
                return _described(client.containers.get(container).attrs)
            except NotFound:
                return None

    def labelled(self, labels: Mapping[str, str]) -> list[Container]:
        """All containers with these labels (empty value: any), also those that do not run."""
        wanted = [f"{name}={value}" if value else name for name, value in labels.items()]
        with self._asked("list containers") as client:
            found = client.containers.list(all=True, filters={"label": wanted}, ignore_removed=True)
            return [_described(each.attrs) for each in found]

    def remove(self, container: str, grace_seconds: float) -> None:
        """Stop a container (SIGTERM, SIGKILL after the grace) and remove it and what it wrote."""
        with self._asked(f"remove the container {container}") as client:
            try:
                found = client.containers.get(container)
                found.stop(timeout=max(0, round(grace_seconds)))
                found.remove(force=True, v=True)
            except NotFound:
                return
            except APIError as error:
                if error.status_code != CONFLICT:
                    raise
                _await_removal(client, container)

    def last_words(self, container: str) -> str:
        """The end of what a container has said."""
        with self._asked(f"read the log of the container {container}") as client:
            try:
                data: bytes = client.containers.get(container).logs(tail=LOG_LINES)
            except NotFound:
                return ""
            return data.decode(errors="replace").rstrip()[-LOG_CHARACTERS_MAX:]

    @contextmanager
    def _asked(self, what: str) -> Iterator[docker.DockerClient]:
        """A client for one request; whatever goes wrong is told as a failure to do `what`.

        Each request has a client of its own, because several threads make requests.
        """
        try:
            with closing(self._client()) as client:
                yield client
        except APIError as error:
            raise ProviderFailed(
                f"Docker refuses to {what}: {error.explanation or error}"
            ) from error
        except (
            DockerException,
            requests.RequestException,
            OSError,
            msgspec.ValidationError,
        ) as error:
            raise ProviderFailed(
                f"cannot {what}: the Docker Engine at {self._url or 'the usual socket'} does not "
                f"answer; see that it runs (`docker info`) and that its address is right: {error}"
            ) from error

    def _client(self) -> docker.DockerClient:
        # The package can find the version out by itself, but loses its socket if that fails.
        with closing(self._client_of(_ANY_VERSION)) as probe:
            version = probe.version(api_version=False)["ApiVersion"]
        return self._client_of(version)

    def _client_of(self, version: str) -> docker.DockerClient:
        if self._url:
            return docker.DockerClient(base_url=self._url, version=version, timeout=self._timeout)
        return docker.from_env(version=version, timeout=self._timeout)


def _await_removal(client: docker.DockerClient, container: str) -> None:
    """Wait for the end of a removal that another manager has begun."""
    try:
        client.containers.get(container).wait(condition="removed")
    except NotFound:
        return


def _described(attributes: Mapping[str, object]) -> Container:
    """A container out of the engine's own description, which is checked here."""
    seen = msgspec.convert(attributes, _Inspected)
    return Container(
        id=seen.id,
        name=seen.name.removeprefix("/"),
        labels=seen.config.labels or {},
        status=seen.state.status,
        created=seen.created,
        addresses={
            name: network.address
            for name, network in seen.network.networks.items()
            if network.address
        },
        exit_code=seen.state.exit_code,
        error=seen.state.error,
    )


class _State(msgspec.Struct, frozen=True, rename="pascal"):
    status: str
    exit_code: int
    error: str


class _Config(msgspec.Struct, frozen=True, rename="pascal"):
    labels: dict[str, str] | None = None


class _Network(msgspec.Struct, frozen=True):
    address: str = msgspec.field(name="IPAddress", default="")


class _Networks(msgspec.Struct, frozen=True, rename="pascal"):
    networks: dict[str, _Network] = msgspec.field(default_factory=dict)


class _Inspected(msgspec.Struct, frozen=True, rename="pascal"):
    """What the engine says of a container, as far as it is of use."""

    id: str
    name: str
    created: str
    state: _State
    config: _Config
    network: _Networks = msgspec.field(name="NetworkSettings")


def _tar(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
