"""What an instance says of itself, whatever its availability function does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, NoReturn

import pytest

import roq
from roq.client.consume.seat import Membership
from roq.client.io.engine import Engine
from roq.client.request.endpoint import endpoint
from roq.client.request.service import HANGS_SECONDS, Service
from roq.protocol import requesting
from roq.protocol.requesting import Figures, ServiceSettings

ECHO = endpoint("s.echo", request=bytes, response=bytes)


def echo(data: bytes, _: object) -> bytes:
    return data


class Scene:
    """A service that every exchange has taken in, of which there is none."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.told: SimpleQueue[Figures] = SimpleQueue()
        self.services: list[Service] = []
        monkeypatch.setattr(
            "roq.client.request.service.InstanceShell.tell_figures",
            lambda _, figures: self.told.put(figures),
        )

    def start(self, available: Any, **given: Any) -> Service:
        service = Service(
            self.engine, ["127.0.0.1:1"], "s", "work", available=available,
            **{"settings": ServiceSettings(), **given},
        )  # fmt: skip
        service.handler(ECHO)(lambda data, _: data)
        service._ready.set()
        self.services.append(service)
        service.start()
        return service


@pytest.fixture
def scene(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(engine, monkeypatch)
    yield made
    for each in made.services:
        each.close(0.0)


def test_a_service_starts_though_its_availability_function_hangs_and_says_so(
    scene: Scene,
) -> None:
    gate, asked = threading.Event(), threading.Event()

    def hangs(_: roq.InstanceState) -> bool:
        asked.set()
        return gate.wait(60)

    service = scene.start(hangs)
    assert asked.wait(20)
    service._looked_at -= HANGS_SECONDS + 1
    scene.engine.run_sync(service._watch)
    figures = scene.told.get(timeout=20)
    assert not figures.available
    assert "has not returned for" in figures.rule
    gate.set()


@pytest.mark.parametrize("error", [SystemExit("\ud800"), RuntimeError("x" * 1_000)])
def test_what_it_raises_makes_the_instance_unavailable_and_ends_nothing(
    scene: Scene, error: BaseException
) -> None:
    def raises(_: roq.InstanceState) -> NoReturn:
        raise error

    scene.start(raises, version="\udfff" * 100)
    for _ in range(2):
        figures = scene.told.get(timeout=20)
        assert not figures.available
        assert f"raised {type(error).__name__}" in figures.rule
        assert requesting.decode(requesting.encode(figures), Figures) == figures


@pytest.mark.parametrize("batch", [0, -1, "many", 10_001])
def test_batches_that_cannot_be(scene: Scene, batch: Any) -> None:
    service = Service(
        scene.engine, ["127.0.0.1:1"], "s", "work", settings=ServiceSettings(), threads=2
    )
    with pytest.raises(roq.InvalidRequest, match="batch is"):
        service.handler(ECHO, batch=batch)


def test_an_instance_holds_what_can_begin_at_once_and_more_while_it_is_quick(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[tuple[int, int, int]] = []
    tick = "roq.client.request.service.InstanceShell.__init__"

    async def coroutine(data: bytes, _: roq.RequestContext) -> bytes:
        return data

    def note(_self: object, _engine: object, member: Membership, *_: Any, **more: Any) -> NoReturn:
        held.append((member.prefetch, member.prefetch_quick, more["at_once"]))
        raise roq.Closed("enough")

    monkeypatch.setattr(tick, note)
    for given, batch, handler in (
        ({}, 0, echo), ({"threads": 2}, 100, echo), ({}, 100, echo), ({}, 0, coroutine),
        ({"prefetch": 100}, 0, echo), ({"prefetch": 7}, 100, echo),
    ):  # fmt: skip
        service = Service(
            scene.engine, ["127.0.0.1:1"], "s", "work", settings=ServiceSettings(),
            **{"threads": 8, **given},
        )  # fmt: skip
        service._handling.register(ECHO, handler, batch)
        with pytest.raises(roq.Closed):
            service.start()
        service._handling.stop()
    assert held == [
        (8, 16, 8), (200, 400, 200), (400, 400, 400), (16, 16, 16), (100, 0, 8), (7, 0, 7),
    ]  # fmt: skip


def test_an_operator_sets_the_flag_and_ends_the_instance(scene: Scene) -> None:
    service = scene.start(lambda state: state.flag)
    service._ordered("unflag")
    while scene.told.get(timeout=20).available:
        continue
    service._ordered("flag")
    while not scene.told.get(timeout=20).available:
        continue
    service._ordered("drain")
    service._ordered("drain")
    service.wait_stopped()
    assert service.drained


def test_what_was_closed_says_so_when_it_is_to_start_again(scene: Scene) -> None:
    service = scene.start(None)
    service.start()  # it runs already
    service.close(0.0)
    with pytest.raises(roq.Closed, match="service s was closed: make another one"):
        service.start()
    service.run()  # of one that was drained meanwhile
    never = Service(scene.engine, ["127.0.0.1:1"], "s", "work", settings=ServiceSettings())
    never.handler(ECHO)(echo)
    never.close()
    with pytest.raises(roq.Closed):
        never.run()


def test_what_could_not_start_does_not_say_that_it_did(engine: Engine) -> None:
    service = Service(
        engine, ["127.0.0.1:1"], "s", "work", settings=ServiceSettings(), timeout=0.05
    )  # fmt: skip
    service.handler(ECHO)(echo)
    with pytest.raises(roq.Unavailable, match="was not taken in"):
        service.start()
    with pytest.raises(roq.Closed):
        service.start()


def test_who_has_chosen_what_the_queue_defines_otherwise_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = ServiceSettings(keep_result=60.0, defined=("keep_result",))
    monkeypatch.setattr("roq.client.request.service.InstanceShell.service", there)
    scene.start(None)
    assert not caplog.records
    scene.start(None, settings=ServiceSettings(keep_result=9.0, chosen=True))
    (record,) = caplog.records
    text = "service s: queue work defines that keep_result is 60, not 9"
    assert record.getMessage() == text


def test_a_handler_of_a_signal_may_stop_it_in_the_middle_of_its_wait(scene: Scene) -> None:
    """Two signals that come together, or one between two waits, must not lock it out for ever."""
    service, ended = scene.start(lambda _: True), threading.Event()

    def wait() -> None:
        sys.setprofile(lambda *_: service.stop())
        service.wait_stopped()
        sys.setprofile(None)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(30)
