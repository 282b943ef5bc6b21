"""The sides of the limits of requests: who answers, who is idle, who is cut, what is open."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.benchmarks import request_party as module
from roq.benchmarks.request_party import BATCH, ECHO, WORK, answer, bytes_of_each, crowd, main, work


class PaperService:
    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.batches: dict[str, int] = {}
        self.entered = 0

    def handler(self, endpoint: Any, *, batch: int = 0) -> Callable[[Any], Any]:
        self.batches[endpoint.name] = batch
        return lambda handle: self.handlers.setdefault(endpoint.name, handle)

    def __enter__(self) -> PaperService:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None: ...


class PaperRoq:
    """In the place of `roq.connect`: clusters, services and requesters that are noted."""

    def __init__(self) -> None:
        self.services: list[PaperService] = []
        self.settings: Any = None
        self.translate: Callable[[str], str] = str
        self.requests: list[Any] = []
        self.closed = 0
        self.done = False

    def __call__(self, _address: str, *, timeout: float, translate: Any = None) -> PaperRoq:
        assert timeout > 0
        self.translate = translate or str
        return self

    def __enter__(self) -> PaperRoq:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def service(self, name: str, _queue: str) -> PaperService:
        assert ECHO.name.startswith(name)
        self.services.append(PaperService())
        return self.services[-1]

    def requester(self, _queue: str, *, settings: Any) -> PaperRoq:
        self.settings = settings
        return self

    def request(self, endpoint: Any, payload: bytes) -> Any:
        made = SimpleNamespace(
            endpoint=endpoint, payload=payload, waited=[], cancelled=0, done=lambda: self.done
        )
        made.accepted = SimpleNamespace(wait=made.waited.append)
        made.cancel = lambda: setattr(made, "cancelled", made.cancelled + 1)
        self.requests.append(made)
        return made


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> PaperRoq:
    made = PaperRoq()
    monkeypatch.setattr(module.roq, "connect", made)
    return made


def test_an_instance_answers_many_together_with_what_they_asked(paper: PaperRoq) -> None:
    with ExitStack() as stack:
        answer(stack, "h:1", "q")
        assert paper.closed == 0
    (service,) = paper.services
    assert (service.entered, paper.closed) == (1, 1)
    assert service.batches == {ECHO.name: BATCH}
    assert service.handlers[ECHO.name]([b"1", b"2"], []) == [b"1", b"2"]


def test_a_crowd_is_so_many_instances_each_with_a_client_of_its_own(paper: PaperRoq) -> None:
    with ExitStack() as stack:
        crowd(stack, "h:1", "q", "3")
    assert (len(paper.services), paper.closed) == (3, 3)


class PaperRelay:
    made: list[PaperRelay]

    def __init__(self, wanted: str) -> None:
        self.address = f"relay of {wanted}"
        self.told: list[str] = []
        self.made.append(self)

    def __enter__(self) -> PaperRelay:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        self.told.append("close")

    def pause(self) -> None:
        self.told.append("pause")


def test_one_that_works_writes_down_when_and_is_cut_off_behind_its_relays(
    paper: PaperRoq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    orders: list[str] = []
    told, ended = threading.Event(), threading.Event()

    class Orders:
        def __iter__(self) -> Any:
            told.wait(20)
            return iter(orders)

    monkeypatch.setattr(PaperRelay, "made", [], raising=False)
    monkeypatch.setattr(module, "Relay", PaperRelay)
    monkeypatch.setattr(module.sys, "stdin", Orders())
    monkeypatch.setattr(module.os, "_exit", lambda _: ended.set())
    path = tmp_path / "log"
    with ExitStack() as stack:
        work(stack, "h:1", "q", str(path), "0.001")
        assert [paper.translate(each) for each in ("a", "b", "a")] == [
            "relay of a", "relay of b", "relay of a",
        ]  # fmt: skip
        assert paper.services[0].handlers[WORK.name](7, None) == 7
        orders += ["silence\n", "cut\n"]
        told.set()
        assert ended.wait(20), "the end of its input ends it"
    assert [each.told for each in PaperRelay.made] == [["pause", "close"]] * 2
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [line[:2] for line in lines] == [
        ["begin", "7"],
        ["end", "7"],
        ["lost", "0"],
        ["lost", "0"],
    ]
    times = [float(line[2]) for line in lines]
    assert times == sorted(times)
    assert times[1] - times[0] >= 0.0005


def test_what_an_open_request_takes_is_measured_beside_others_that_are_open(
    paper: PaperRoq, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([1_000, 51_000])
    monkeypatch.setattr(module, "rss_bytes", lambda _: next(sizes))
    assert bytes_of_each("h:1", "q", 100) == 500.0
    assert len(paper.requests) == 10 + 100, "the first ones are there before it begins"
    assert all((len(each.waited), each.cancelled) == (1, 1) for each in paper.requests)
    assert paper.settings["send_wait"] >= 60.0, "none is looked for again meanwhile"


def test_requests_that_end_are_no_open_ones(
    paper: PaperRoq, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper.done = True
    with pytest.raises(AssertionError):
        bytes_of_each("h:1", "q", 10)


def test_it_is_what_its_first_argument_says_until_its_input_ends(
    paper: PaperRoq, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    main(["crowd", "h:1", "q", "2"])
    assert (capsys.readouterr().out, paper.closed) == ("ready\n", 2)
    monkeypatch.setattr(module, "bytes_of_each", lambda *given: sum(map(len, given[:2])) + given[2])
    main(["open", "h:1", "q", "10"])
    assert capsys.readouterr().out == "14\n"
    with pytest.raises(KeyError):
        main(["nobody", "h:1", "q"])
