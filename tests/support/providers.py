"""Providers of paper, good ones and bad ones; no test in here."""

from __future__ import annotations

import threading
import time
from typing import Annotated

import msgspec

from roq.errors import NoMoreHosts, ProviderFailed
from roq.model import check_name
from roq.provider.port import HostRequest, HostState, ProvidedHost


class Place:
    """Where hosts of paper are; outlives the provider objects, as real hosts do."""

    def __init__(self) -> None:
        self.hosts: dict[str, ProvidedHost] = {}
        self.requests: list[HostRequest] = []
        self.removed: list[str] = []
        self.lock = threading.Lock()

    def end(self, handle: str) -> None:
        """The host manager of this host ends."""
        with self.lock:
            self.hosts[handle] = msgspec.structs.replace(
                self.hosts[handle], state=HostState.ENDED, note="exit code 70"
            )


class PaperOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hosts_max: Annotated[int, msgspec.Meta(ge=0)] = 100


class PaperProvider:
    """Keeps the contract; its hosts do nothing, so they never register by themselves."""

    Options = PaperOptions

    def __init__(self, options: PaperOptions | None = None, place: Place | None = None) -> None:
        self.options = options or PaperOptions()
        self.place = place or Place()
        self.closed = False

    def create(self, request: HostRequest) -> ProvidedHost:
        place, handle = self.place, f"{request.cluster}/{request.name}"
        with place.lock:
            place.requests.append(request)
            found = place.hosts.get(handle)
            if found is not None and found.state is HostState.RUNNING:
                return found
            if "no_such_setting" in str(request.settings):
                place.hosts.pop(handle, None)
                raise ProviderFailed(f"host {request.name} has ended at once: unknown key")
            if len(place.hosts) >= self.options.hosts_max:
                raise NoMoreHosts(f"there are {self.options.hosts_max} hosts already")
            taken = {*request.taken, *(host.host for host in place.hosts.values())}
            address = next(
                each for number in range(1, 250) if (each := f"127.0.7.{number}") not in taken
            )
            place.hosts[handle] = ProvidedHost(
                name=request.name, host=address, handle=handle, created=time.time()
            )
            return place.hosts[handle]

    def list(self, cluster: str) -> list[ProvidedHost]:
        check_name(cluster, "cluster")
        with self.place.lock:
            return [
                host
                for handle, host in sorted(self.place.hosts.items())
                if handle.startswith(f"{cluster}/")
            ]

    def remove(self, handle: str) -> None:
        with self.place.lock:
            if self.place.hosts.pop(handle, None) is not None:
                self.place.removed.append(handle)

    def close(self) -> None:
        self.closed = True


class FailingProvider(PaperProvider):
    """Raises at the first `failures` calls of each method named in `fails`, then works."""

    def __init__(
        self,
        *fails: str,
        failures: int = 1_000_000,
        error: Exception | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(place=place)
        self.error = error or ProviderFailed("the rack is on fire; call somebody")
        self.left = dict.fromkeys(fails or ("create", "list", "remove"), failures)
        self.calls: list[str] = []

    def create(self, request: HostRequest) -> ProvidedHost:
        self._fail("create")
        return super().create(request)

    def list(self, cluster: str) -> list[ProvidedHost]:
        self._fail("list")
        return super().list(cluster)

    def remove(self, handle: str) -> None:
        self._fail("remove")
        super().remove(handle)

    def _fail(self, method: str) -> None:
        self.calls.append(method)
        if self.left.get(method, 0) > 0:
            self.left[method] -= 1
            raise self.error


class HangingProvider(PaperProvider):
    """Each method named in `hangs` waits until `release()`; do that before the test ends."""

    def __init__(self, *hangs: str, place: Place | None = None) -> None:
        super().__init__(place=place)
        self.hangs = frozenset(hangs or ("create",))
        self.entered = threading.Semaphore(0)
        """Acquire it to wait until a call hangs."""
        self._released = threading.Event()

    def release(self) -> None:
        """Let all calls go on."""
        self._released.set()

    def create(self, request: HostRequest) -> ProvidedHost:
        self._hang("create")
        return super().create(request)

    def list(self, cluster: str) -> list[ProvidedHost]:
        self._hang("list")
        return super().list(cluster)

    def remove(self, handle: str) -> None:
        self._hang("remove")
        super().remove(handle)

    def _hang(self, method: str) -> None:
        if method in self.hangs:
            self.entered.release()
            self._released.wait(60)


class LyingProvider(PaperProvider):
    """Says that it has made a host, of a name and address nobody asked for, and made none."""

    def create(self, request: HostRequest) -> ProvidedHost:
        return ProvidedHost(name="another", host="300.1.2.3 nonsense", handle="", created=-1.0)


SilentProvider = PaperProvider
"""Gives hosts that never register."""

__all__ = [
    "FailingProvider",
    "HangingProvider",
    "LyingProvider",
    "PaperProvider",
    "Place",
    "SilentProvider",
]
