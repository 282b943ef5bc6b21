"""Requests, services and responses, as methods of `roq.Cluster`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import time
from typing import Any, Final, TypeVar

from roq.client.admin.commands import request
from roq.client.consume.groups import GroupListing, GroupSummary, no_service
from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Receipt
from roq.client.request.context import parse_id
from roq.client.request.endpoint import Endpoint
from roq.client.request.orders import order_instances, run_again
from roq.client.request.pending import Pending
from roq.client.request.requester import Requester
from roq.client.request.service import THREADS, InstanceState, Service, settings_of
from roq.client.request.shell import Collector
from roq.client.request.views import (
    RequestDescription,
    ServiceView,
    describe_request,
    describe_service,
)
from roq.client.request.waiting_requests import Waiter
from roq.errors import GroupNotFound, InvalidRequest
from roq.model import check_name
from roq.protocol.defined_services import checked_services
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import QueueDescription
from roq.protocol.requesting import ServiceSettings

R = TypeVar("R")
T = TypeVar("T")

Settings = Mapping[str, float] | ServiceSettings
"""Of a service: names as of `ServiceSettings`."""
Services = Mapping[str, Mapping[str, float]]
"""Settings by name of a service, or `*` for all that do not say otherwise."""
DEFINE_SECONDS: Final = 30.0


class RequestCommands(ABC):
    """What a client does with services."""

    _engine: Engine
    _timeout: float
    _lock: threading.RLock

    @property
    @abstractmethod
    def addresses(self) -> list[str]:
        """Client endpoints of the configuration managers that are known by now."""

    @abstractmethod
    def publisher(
        self, queue: str, *, offsets: bool = ..., linger: float = ..., block: bool = ...,
        receipt: type[Receipt] = ...,
    ) -> Publisher:  # fmt: skip
        """A publisher to a queue."""

    @abstractmethod
    def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""

    @abstractmethod
    def groups(
        self, queue: str, group: str | None = None, *, timeout: float | None = None
    ) -> GroupListing:
        """The consumer groups of a queue."""

    @abstractmethod
    def _ask(self, document: RawDocument, timeout: float | None = None) -> RawDocument:
        """The answer of the leading manager."""

    @abstractmethod
    def _seconds(self, timeout: float | None) -> float:
        """A time limit, or that of the connection."""

    @abstractmethod
    def _adopt(self, child: T) -> T:
        """Close this in the end."""

    def requester(
        self,
        queue: str,
        *,
        settings: Settings | None = None,
        collect: bool = True,
        linger: float = 0.001,
        timeout: float | None = None,
        block: bool = True,
        receipt: type[Receipt] = Receipt,
    ) -> Requester:
        """Makes requests through a queue; see `Requester`.

        Args:
            settings: of services that it uses: they replace those that these have, but for what
                the queue defines (`define_services`). None: as they are, or the defaults for those
                that are new.
            collect: False: it takes no responses. They wait for whoever asks `response` for them,
                by the ids of the requests; a result that is waited for here does not come.
            linger: seconds that a request waits for others at most, when the link is busy.
            timeout: seconds that a request waits for room; None: as `connect` was told.
            block: False: it raises `WouldBlock` instead.
            receipt: the class of the receipts.
        """
        publisher = self.publisher(queue, offsets=True, linger=linger, block=block, receipt=receipt)

        def make(on_lost: Callable[[Waiter], bool]) -> Collector:
            whose = publisher.id if collect else b""
            return Collector(self._engine, self.addresses, queue, whose, on_lost)

        try:
            requester = Requester(
                publisher, make, settings=settings_of(settings), collect=collect, block=block,
                timeout=self._seconds(timeout),
            )  # fmt: skip
        except BaseException:
            publisher.abort()
            raise
        return self._adopt(requester)

    def service(
        self,
        name: str,
        queue: str,
        *,
        threads: int = THREADS,
        prefetch: int | None = None,
        available: Callable[[InstanceState], bool] | None = None,
        retry_on: str | None = None,
        retries: int = 1,
        retry: float = 1.0,
        retry_max: float = 60.0,
        lease: float = 10.0,
        settings: Settings | None = None,
        instance: str | None = None,
        version: str = "",
        timeout: float | None = None,
    ) -> Service:
        """An instance of a service; see `Service`. It takes requests from `start` or `run` on.

        Args:
            settings: replace those that the service has, but for what the queue defines
                (`define_services`); None: they stay.
            timeout: seconds until every exchange has taken it in; None: as `connect` was told.
        """
        check_name(name, "service")
        if name.startswith(".") or name.endswith("."):
            raise InvalidRequest(f"service {name!r}: its name does not begin or end with a dot")
        service = Service(
            self._engine,
            self.addresses,
            name,
            check_name(queue),
            threads=threads,
            prefetch=prefetch,
            available=available,
            retry_on=retry_on,
            retries=retries,
            retry=retry,
            retry_max=retry_max,
            lease=lease,
            settings=settings_of(settings),
            instance=instance,
            version=version,
            timeout=self._seconds(timeout),
        )
        return self._adopt(service)

    def define_services(
        self, queue: str, services: Services, *, timeout: float = DEFINE_SECONDS
    ) -> None:
        """Make settings of services a part of what the queue is, as `create_queue` does.

        They hold at every exchange within a moment, whatever clients choose with `settings=`, which
        count where these say nothing. `describe` tells what is defined.

        Args:
            services: by name, or `*` for all that do not say otherwise; in the place of all that
                was defined before. What is not defined any more has its default, until a client
                chooses.
            timeout: seconds.

        Raises:
            InvalidRequest: there is no such setting, or it is out of bounds.
            QueueNotFound: there is no such queue.
        """
        defined = checked_services(services)
        self._ask(request(2105, QName=check_name(queue), Services=defined), timeout)

    def services(self, queue: str, *, timeout: float | None = None) -> list[str]:
        """The names of the services that answer requests of a queue.

        Args:
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Raises:
            Unavailable: nobody has answered.
            QueueStopped: the queue does not run.
        """
        return [group.name for group in self.groups(queue, timeout=timeout) if group.service]

    def describe_service(
        self, queue: str, name: str, *, timeout: float | None = None
    ) -> ServiceView:
        """How a service stands: its instances, its requests, and how they have ended.

        Args:
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Raises:
            GroupNotFound: there is no such service.
            Unavailable: nobody has answered.
            QueueStopped: the queue does not run.
        """
        found: list[GroupSummary] = []
        with suppress(GroupNotFound):
            found = [each for each in self.groups(queue, name, timeout=timeout) if each.service]
        if not found:
            raise GroupNotFound(no_service(queue, name))
        (group,) = found
        return describe_service(self._engine, self.describe(queue), group, self._seconds(timeout))

    def flag_service(
        self, queue: str, name: str, *, available: bool, instance: str | None = None,
        timeout: float | None = None,
    ) -> list[str]:  # fmt: skip
        """Set the flag of instances, as `Service.flag` does; those that come later have theirs set.

        Args:
            available: what their availability functions see.
            instance: name or id of the one that is meant; None: all of the service.
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Returns:
            The names of the instances that are told.

        Raises:
            GroupNotFound: there is no such service.
            InvalidRequest: there is no such instance, or that is a group and no service.
            Unavailable: nobody has answered that knows it.
            QueueStopped: the queue does not run.
        """
        word = "flag" if available else "unflag"
        return self._order_instances(queue, name, word, instance, timeout)

    def drain_service(
        self, queue: str, name: str, *, instance: str | None = None, timeout: float | None = None
    ) -> list[str]:
        """Have instances end: they take nothing more, give back what has not begun, and finish what
        runs; `Service.run` returns then. Arguments, result and errors as of `flag_service`."""
        return self._order_instances(queue, name, "drain", instance, timeout)

    def retry_request(
        self, endpoint: Endpoint[Any, Any], request_id: str, *, timeout: float | None = None
    ) -> None:
        """Have a request that is `failed`, `discarded` or `unknown` run once more, under its id.

        Its time begins anew, and `response` waits for how it ends now. Its outcome must not be
        fetched, and what was requested still be in the log of its exchange.

        Args:
            endpoint: what was requested.
            request_id: the id of the request.
            timeout: seconds that its exchange has to answer; None: as `connect` was told.

        Raises:
            InvalidRequest: it has not ended so, or what was requested is not kept any more.
            ResponseLost: its exchange is gone.
            GroupNotFound: its exchange does not have the service.
            Unavailable: its exchange does not answer.
            QueueStopped, QueueNotFound: the queue does not run, or is not there.
        """
        where = parse_id(request_id)
        queue, seconds = self.describe(where.queue), self._seconds(timeout)
        run_again(self._engine, queue, endpoint.service, where, seconds)

    def describe_request(
        self, endpoint: Endpoint[Any, Any], request_id: str, *, timeout: float | None = None
    ) -> RequestDescription:
        """How a request stands; its outcome stays where it is.

        Args:
            endpoint: what was requested.
            request_id: the id of the request.
            timeout: seconds that its exchange has to answer; None: as `connect` was told.

        Raises:
            InvalidRequest: that is no id.
            GroupNotFound: its exchange does not have the service.
            Unavailable: its exchange does not answer.
            QueueStopped, QueueNotFound: the queue does not run, or is not there.
        """
        where = parse_id(request_id)
        queue, seconds = self.describe(where.queue), self._seconds(timeout)
        return describe_request(self._engine, queue, endpoint.service, where, seconds, time())

    def _order_instances(
        self, queue: str, name: str, word: str, instance: str | None, timeout: float | None
    ) -> list[str]:
        if instance == "":
            raise InvalidRequest(
                "instance is empty: name one as `service_instances` does, or none for all"
            )
        return order_instances(
            self._engine, self.describe(queue), check_name(name, "service"), word, instance or "",
            self._seconds(timeout),
        )  # fmt: skip

    def response(self, endpoint: Endpoint[Any, R], request_id: str) -> Pending[R]:
        """The response to a request that this or another client has made.

        Args:
            endpoint: what was requested.
            request_id: the id of the request.

        Raises:
            InvalidRequest: that is no id.
            QueueNotFound: its queue is gone.
            Unavailable: this client waits for 100,000 of the queue already.
        """
        where = parse_id(request_id)
        collector = self._collector(where.queue)
        pending: Pending[R] = Pending(collector, where.queue, endpoint)
        pending.place(where.log, where.position)
        collector.find(pending)
        return pending

    def _collector(self, queue: str) -> Collector:
        """What waits for requests of a queue that others have made."""
        self._engine.check_process()
        with self._lock:
            found = self._collectors.get(queue)
            if found is None or found.ended:
                made = Collector(self._engine, self.addresses, queue)
                found = self._collectors[queue] = self._adopt(made)
        found.need_exchanges(self._timeout)
        return found

    @property
    def _collectors(self) -> dict[str, Collector]:
        """By queue."""
        held: dict[str, Collector] = self.__dict__.setdefault("_collectors_of", {})
        return held
