"""A console without a cluster or a network: what the cluster says is written here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self
from urllib.parse import urlencode

import kpi_samples
import msgspec

from roq.client.admin.board import Board
from roq.client.admin.views import Listing
from roq.client.consume.groups import GroupListing, GroupMember, GroupPart, GroupSummary
from roq.client.operate.followers import QueueReport
from roq.client.operate.survey import Finding, Survey
from roq.client.request.views import RequestRow, ServiceView
from roq.console.app import WebConsole
from roq.console.looks import Look
from roq.console.settings import ConsoleSettings
from roq.console.source import Connection, Source
from roq.errors import GroupNotFound, QueueNotFound
from roq.model import Limits
from roq.protocol.kpi import MoveKpi
from roq.protocol.public_answers import HostSummary, QueueDescription, QueueSummary
from roq.protocol.requesting import Durations, Figures, ServiceSettings

SCRIPT = "<script>alert('x')</script>"


def described(name: str = "load", **fields: Any) -> QueueDescription:
    exchange = {
        "Name": "x1", "Number": 1, "Host": "127.0.0.1", "Data": "tcp://127.0.0.1:1",
        "Live": "tcp://127.0.0.1:2", "State": "running", "Epoch": 1, "Pid": 7,
    }  # fmt: skip
    document = {
        "Name": name, "Host": "127.0.0.1", "State": "running", "Running": True,
        "Durability": "none", "Monitor": "tcp://127.0.0.1:3", "Statistics": "tcp://127.0.0.1:4",
        "Created": 0.0, "QueueId": "ab", "Limits": msgspec.to_builtins(Limits()),
        "Exchanges": [exchange], "Rules": {}, **fields,
    }  # fmt: skip
    return msgspec.convert(document, QueueDescription)


def summary(name: str = "load", **fields: Any) -> QueueSummary:
    document = {
        "Name": name, "Host": "127.0.0.1", "State": "running", "Running": True, "Exchanges": 1,
        "Durability": "none", **fields,
    }  # fmt: skip
    return msgspec.convert(document, QueueSummary)


def host(name: str = "127.0.0.1", **fields: Any) -> HostSummary:
    document = {
        "Host": name, "Control": f"tcp://{name}:9", "Exchanges": 1, "Monitors": 1, "ExchangeMax": 0,
        "Cpu": 3.0, "MemoryBytes": 9, "State": "live", "Children": [], **fields,
    }  # fmt: skip
    return msgspec.convert(document, HostSummary)


def group(name: str = "billing", **fields: Any) -> GroupSummary:
    part = GroupPart(
        exchange="x1", base=3, end=8, out=1, waiting=0, oldest_seconds=61.0, members=1,
        paused=False, acknowledged=3, failed=0, lapsed=0, expired=0, stalled="",
    )  # fmt: skip
    given: dict[str, Any] = {
        "name": name, "mode": "shared", "topics": [""], "lease_seconds": 30.0, "attempts": 16,
        "created": 0.0, "members": 1, "behind": 5, "out": 1, "waiting": 0, "oldest_seconds": 61.0,
        "paused": False, "acknowledged": 3, "failed": 0, "lapsed": 0, "expired": 0, "stalled": [],
        "parts": [part], "who": [],
    }  # fmt: skip
    return GroupSummary(**{**given, **fields})


def service(**fields: Any) -> ServiceView:
    """The service `answers` of the queue `load`; arguments replace what it is."""
    said = Figures(True, "", 3, 16, 12.5, 1000, 7.0, True, "v7", ["answers.create"])
    instance = GroupMember(id="ab", name="ann", exchanges=["x1"], held=1, credit=15,
                           acknowledged=3, silent_seconds=0.5, figures=said)  # fmt: skip
    row = RequestRow(id="load.r1", state="running", text="", instance="ann", attempts=1,
                     age_seconds=4.0, bytes=0)  # fmt: skip
    given: dict[str, Any] = {
        "name": "answers", "queue": "load", "settings": ServiceSettings(), "open": 5, "stored": 2,
        "stored_bytes": 2000, "oldest_seconds": 61.0, "counts": {"done": 40, "failed": 2},
        "accepted": 47, "waiting": Durations([3], 0.003), "requests": [row],
        "instances": [instance], "stalled": [], "missing": {},
    }  # fmt: skip
    return ServiceView(**{**given, **fields})


class PaperCluster:
    """Says what it is told to say, and notes what it is asked to do."""

    def __init__(self) -> None:
        self.rows = [summary()]
        self.all_hosts = [host()]
        self.all_groups = [group(), group("answers", service=True)]
        self.all_services = [service()]
        self.description = described()
        self.done: list[tuple[Any, ...]] = []
        self.asked: list[str] = []

    def queues(self) -> Listing[QueueSummary]:
        self.asked.append("queues")
        return Listing(self.rows, None)

    def hosts(self) -> Listing[HostSummary]:
        return Listing(self.all_hosts, None)

    def describe(self, queue: str) -> QueueDescription:
        if queue != self.description.name:
            raise QueueNotFound(f"queue {queue!r} does not exist")
        return self.description

    def groups(self, queue: str, group: str | None = None, *, timeout: float) -> GroupListing:
        return GroupListing([each for each in self.all_groups if group in {None, each.name}], {})

    def describe_service(self, queue: str, name: str, *, timeout: float) -> ServiceView:
        for each in self.all_services:
            if each.name == name and queue == self.description.name:
                return each
        raise GroupNotFound(f"queue {queue} has no service {name}")

    def queue_exists(self, queue: str) -> bool:
        return queue == self.description.name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def note(*arguments: Any, **fields: Any) -> list[str]:
            self.done.append((name, *arguments, fields))
            return ["x1"]

        return note


class PaperSource(Source):
    """A source that never connects."""

    def __init__(self, cluster: PaperCluster | None = None) -> None:
        super().__init__("127.0.0.1:5000")
        self.paper = cluster or PaperCluster()
        self._connection = Connection("", 0.0)
        checks = Finding(role="gcm", name="a", address="a:1", state="leading", ready=True)
        self.survey = Survey((checks,))
        board = Board("load")
        now = monotonic()
        board.take(kpi_samples.exchange(now, 1, publishers=1, top=[
            kpi_samples.rate("ab" * 16, 1000.0)]).document, now)  # fmt: skip
        self.board = board
        self.tell()

    def tell(self, *moves: MoveKpi) -> None:
        """These moves have been told by the monitor."""
        for move in moves:
            self.board.take(move, monotonic())
        self._reports = {
            "load": QueueReport(state="running", reason="", view=self.board.view(monotonic()))
        }

    def start(self) -> None: ...

    def close(self) -> None:
        self._executor.shutdown()

    def cluster(self) -> Any:
        return self.paper

    def health(self) -> Look[Survey]:
        return Look(self.survey, monotonic())


@dataclass
class Answer:
    """What a browser gets."""

    status: int
    headers: list[tuple[str, str]]
    text: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class PaperBrowser:
    """Asks an ASGI application as a browser does, and keeps its cookies."""

    def __init__(
        self, app: Any, *, client: str = "127.0.0.1", host: str = "127.0.0.1:7080"
    ) -> None:
        self.app = app
        self.client, self.host = client, host
        self.cookies: dict[str, str] = {}

    def get(self, path: str, chunks: int = 0) -> Answer:
        return self.ask("GET", path, b"", chunks)

    def post(self, path: str, form: Mapping[str, str], length: str = "") -> Answer:
        return self.ask("POST", path, urlencode(form).encode(), 0, length)

    def form(self, path: str) -> str:
        """The word that the forms of a page carry."""
        return self.field(path, "form")

    def field(self, path: str, name: str) -> str:
        text = self.get(path).text
        start = text.index(f'name="{name}" value="') + len(f'name="{name}" value="')
        return text[start : text.index('"', start)]

    def ask(self, method: str, path: str, body: bytes, chunks: int = 0, length: str = "") -> Answer:
        return asyncio.run(self._ask(method, path, body, chunks, length))

    async def _ask(self, method: str, path: str, body: bytes, chunks: int, length: str) -> Answer:
        where, _, query = path.partition("?")
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {
            "host": self.host, "cookie": cookies, "content-length": length or str(len(body)),
            "content-type": "application/x-www-form-urlencoded",
        }  # fmt: skip
        scope = {
            "type": "http", "method": method, "path": where, "query_string": query.encode(),
            "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
            "client": (self.client, 1), "server": ("127.0.0.1", 7080), "scheme": "http",
            "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"},
        }  # fmt: skip
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        answer = Answer(0, [], "")
        seen = 0
        gone: Future[None] = Future()

        async def receive() -> Any:
            if sent:
                return sent.pop()
            await asyncio.wrap_future(gone)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal seen
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = [(k.decode(), v.decode()) for k, v in message["headers"]]
                return
            answer.text += message.get("body", b"").decode()
            seen += 1
            if chunks and seen >= chunks and not gone.done():
                gone.set_result(None)

        await self.app(scope, receive, send)
        for key, value in answer.headers:
            if key == "set-cookie":
                name, _, rest = value.partition("=")
                self.cookies[name] = rest.partition(";")[0]
        return answer


class PaperConsole(PaperBrowser):
    """A console and a browser of it, closed in the end."""

    def __init__(self, **settings: Any) -> None:
        self.source = PaperSource()
        self.cluster = self.source.paper
        given = ConsoleSettings(cluster="127.0.0.1:5000", **settings)
        self.console = WebConsole(given, self.source)
        super().__init__(self.console.asgi)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.console.close()
