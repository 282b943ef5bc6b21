"""Calls of the provider: each in a thread of its own, so that one that hangs stops nothing else.

A call that takes too long is given up: its answer comes as a sentence, and its thread, which nobody
can end, is left alone. There are never more than `THREADS_MAX` of them; while all hang, further
calls are refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from roq.errors import RoQError
from roq.gcm.events import (
    CreateHost,
    GivenUp,
    ListHosts,
    ProviderAction,
    ProviderAnswer,
    RemoveHost,
)
from roq.provider.port import HOSTS_MAX, HostRequest, ProvidedHost, Provider
from roq.runtime.reactor import Reactor

THREADS_MAX: Final = 16

log = logging.getLogger(__name__)

Done = Callable[[ProviderAnswer], None]
MakeRequest = Callable[[CreateHost], HostRequest]


class ProviderCalls:
    """The provider of this cluster, as a loop can use it.

    Args:
        reactor: where the answers are handed over.
        provider: closed by `close`.
        cluster: gives the id of the cluster.
        make_request: completes what a host is to be told.
        seconds: what a call may take.
    """

    def __init__(
        self,
        reactor: Reactor,
        provider: Provider,
        *,
        cluster: Callable[[], str],
        make_request: MakeRequest,
        seconds: float,
    ) -> None:
        self._reactor = reactor
        self._provider = provider
        self._cluster = cluster
        self._make_request = make_request
        self._seconds = seconds
        self._running = 0
        self._closed = False

    def call(self, action: ProviderAction, done: Done) -> None:
        """Have it done; `done` gets the answer, or why there is none, exactly once and later."""
        if self._running >= THREADS_MAX:
            self._reactor.call_soon(lambda: done(f"{self._running} earlier calls hang"))
            return
        try:
            work = self._work(action)
        except RoQError as error:
            why = str(error)
            self._reactor.call_soon(lambda: done(why))
            return
        self._running += 1
        pending = [done]

        def finish(answer: ProviderAnswer) -> None:
            if pending and not self._closed:
                timer.cancel()
                pending.pop()(answer)

        def finished(answer: ProviderAnswer) -> None:
            self._running -= 1
            finish(answer)

        timer = self._reactor.call_later(self._seconds, lambda: finish(GivenUp(self._seconds)))
        threading.Thread(
            target=lambda: self._run(work, finished), name="provider", daemon=True
        ).start()

    def close(self) -> None:
        """Take no more answers; hosts stay."""
        self._closed = True
        self._provider.close()

    def _work(self, action: ProviderAction) -> Callable[[], ProviderAnswer]:
        """What the thread does; the request is completed here, in the loop's thread."""
        provider, cluster = self._provider, self._cluster()
        match action:
            case CreateHost():
                request = self._make_request(action)
                return lambda: _checked(provider.create(request))
            case ListHosts():
                return lambda: _all_checked(provider.list(cluster))
            case RemoveHost(handle=handle):
                return lambda: provider.remove(handle)

    def _run(self, work: Callable[[], ProviderAnswer], finished: Done) -> None:
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001 - a provider is anybody's code; the text is told
            log.info("the provider raised %r", error, extra={"event": "provider_raised"})
            answer = str(error) or repr(error)
        self._reactor.call_soon(lambda: finished(answer))


def _checked(host: object) -> ProviderAnswer:
    if not isinstance(host, ProvidedHost) or not host.name or not host.host:
        return f"it gave {host!r:.100} instead of a host with name and address"
    return host


def _all_checked(hosts: object) -> ProviderAnswer:
    if not isinstance(hosts, Iterable):
        return f"it gave {hosts!r:.100} instead of its hosts"
    found = tuple(hosts)[:HOSTS_MAX]
    if not all(isinstance(host, ProvidedHost) for host in found):
        return "it gave something else instead of its hosts"
    return found
