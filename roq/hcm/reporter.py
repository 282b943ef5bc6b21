"""The connection to the configuration manager that takes the reports of this host."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import psutil
import zmq

from roq.errors import Unavailable
from roq.hcm.events import LeaderAnswered, LeaderLost
from roq.hcm.leader import ANSWER_SECONDS
from roq.protocol.control import Answer, HostReport
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient


class Reporter:
    """Sends reports to one manager at a time.

    Args:
        handle: called with what becomes of them.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        handle: Callable[[LeaderAnswered | LeaderLost], None],
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._handle = handle
        self._client: RpcClient | None = None

    def report(self, endpoint: str, report: HostReport) -> None:
        """Report there; one that is under way elsewhere is not waited for any more."""
        if self._client is None or self._client.endpoint != endpoint:
            self.close()
            try:
                self._client = self._connect(endpoint)
            except zmq.ZMQError as error:
                reason = f"cannot connect to {endpoint[:300]}: {error.strerror}"
                self._reactor.call_soon(lambda: self._handle(LeaderLost(endpoint, reason)))
                return
        self._client.request(with_load(report), ANSWER_SECONDS, self._answered)

    def close(self) -> None:
        """Report to nobody."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self, endpoint: str) -> RpcClient:
        def lost(reason: str) -> None:
            self.close()
            self._handle(LeaderLost(endpoint, f"{endpoint}: {reason}"))

        return RpcClient(self._reactor, self._context, endpoint, on_lost=lost)

    def _answered(self, answer: Answer | Unavailable) -> None:
        self._handle(LeaderAnswered(answer))


def with_load(report: HostReport) -> HostReport:
    """The report with how busy this machine is, as far as the system tells."""
    try:
        memory = psutil.virtual_memory()
        cpu_percent = psutil.cpu_percent()
    except OSError:
        return report  # no descriptor is left to read it with; the children count more
    return msgspec.structs.replace(
        report,
        cpu_percent=cpu_percent,
        memory_bytes=memory.total - memory.available,
        memory_free_bytes=memory.available,
    )
