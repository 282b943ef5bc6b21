"""Calls of the provider: each in a thread of its own, so that one that hangs stops nothing else.

A call that takes too long is given up: its answer comes as a sentence, and its thread, which nobody
can end, is left alone. There are never more than `THREADS_MAX` of them; while all hang, further
calls are refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec

from roq.errors import RoQError
from roq.gcm.events import (
    CreateHost,
    GivenUp,
    ListHosts,
    ProviderAction,
    ProviderAnswer,
    RemoveHost,
)
from roq.model import check_name
from roq.protocol.public import check_host
from roq.provider.port import (
    HANDLE_CHARACTERS_MAX,
    HOSTS_MAX,
    HostRequest,
    ProvidedHost,
    Provider,
)
from roq.runtime.reactor import Reactor

THREADS_MAX: Final = 16
CLOSE_SECONDS: Final = 2.0
"""A provider that does not let go of its connections within this is left alone."""
ERROR_MAX: Final = 2_000
"""Characters; a provider's own words have the end of a log in them."""

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
        thread = threading.Thread(target=self._close_provider, name="provider", daemon=True)
        thread.start()
        thread.join(CLOSE_SECONDS)

    def _work(self, action: ProviderAction) -> Callable[[], ProviderAnswer]:
        """What the thread does; the request is completed here, in the loop's thread."""
        provider, cluster = self._provider, self._cluster()
        match action:
            case CreateHost():
                request = self._make_request(action)
                return lambda: _created(provider.create(request), request)
            case ListHosts():
                return lambda: _listed(provider.list(cluster))
            case RemoveHost(handle=handle):
                return lambda: _removed(provider, handle)

    def _close_provider(self) -> None:
        try:
            self._provider.close()
        except BaseException as error:  # noqa: BLE001 - as in `_run`
            log.warning("the provider: %s", _words(error), extra={"event": "provider_raised"})

    def _run(self, work: Callable[[], ProviderAnswer], finished: Done) -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - a provider is a user's code
            answer = _words(error)
            log.info("the provider raised: %s", answer, extra={"event": "provider_raised"})
        self._reactor.call_soon(lambda: finished(answer))


def _created(host: object, request: HostRequest) -> ProviderAnswer:
    problem = _problem_of(host)
    if problem or not isinstance(host, ProvidedHost):
        return f"it gave {problem} instead of a host"
    if host.name != request.name:
        return f"it gave host {host.name} instead of {request.name}"
    if not host.host or host.host in request.taken:
        return f"it gave a host at {host.host!r}, where no new one can be"
    return host


def _removed(provider: Provider, handle: str) -> ProviderAnswer:
    provider.remove(handle)
    return None  # whatever it gave


def _listed(hosts: object) -> ProviderAnswer:
    if not isinstance(hosts, Iterable):
        return f"it gave {type(hosts).__name__} instead of its hosts"
    found = tuple(islice(hosts, HOSTS_MAX))
    problem = next(filter(None, map(_problem_of, found)), "")
    return f"it gave {problem} among its hosts" if problem else found


def _problem_of(host: object) -> str:
    """What is wrong with something that should be a host; empty if nothing is."""
    if not isinstance(host, ProvidedHost):
        return type(host).__name__
    try:
        # Made by a user's code, so its fields have any type.
        msgspec.convert(msgspec.structs.asdict(host), ProvidedHost)
        check_name(host.name, "host")
        if host.host:
            check_host(host.host)
    except (msgspec.ValidationError, RoQError) as error:
        return f"{str(error)[:ERROR_MAX]}"
    return "a handle that is too long" if len(host.handle) > HANDLE_CHARACTERS_MAX else ""


def _words(error: BaseException) -> str:
    try:
        return (str(error) or repr(error))[:ERROR_MAX]
    except Exception:  # noqa: BLE001 - even its text is a user's code
        return type(error).__name__
