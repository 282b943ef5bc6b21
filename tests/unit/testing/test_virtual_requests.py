"""Services and requesters of a program on a clock of the test's."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import roq
import roq.testing
from roq.testing import RequestWorld

REQUESTS = Path(__file__).resolve().parents[3] / "docs" / "requests.md"
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


class Order(msgspec.Struct):
    number: int


class Invoice(msgspec.Struct):
    total: int


again = roq.endpoint("billing.again", request=Order, response=Invoice, idempotent=True)
once = roq.endpoint("billing.once", request=Order, response=Invoice)
double = roq.endpoint("stock.double", request=int, response=int, idempotent=True)


@pytest.fixture
def world() -> Iterator[RequestWorld]:
    with roq.testing.requests() as made:
        yield made


def seconds(world: RequestWorld) -> float:
    return (world.now - BEGIN).total_seconds()


def doubles(world: RequestWorld, takes: float = 0.0) -> roq.Service:
    service = world.service("stock")

    @service.handler(double)
    def handle(number: int, context: roq.RequestContext) -> int:
        if takes:
            world.sleep(takes)
        return 2 * number

    return service


def test_a_request_is_answered_and_nothing_is_waited_for(world: RequestWorld) -> None:
    before, began = threading.active_count(), time.monotonic()
    service = world.service("billing")
    called: list[tuple[float, int, int]] = []

    @service.handler(again)
    def handle(order: Order, context: roq.RequestContext) -> Invoice:
        world.sleep(40)
        called.append((seconds(world), order.number, context.attempt))
        return Invoice(2 * order.number)

    pending = world.requester().request(again, Order(7), within=60)
    assert pending.state == "pending"
    world.advance(39.9)
    assert (pending.state, called) == ("pending", [])
    world.advance(0.2)
    assert called == [(40.0, 7, 1)]
    assert (pending.state, pending.result(0), pending.attempts) == ("done", Invoice(14), 1)
    assert pending.accepted is not None
    assert pending.accepted.result(0).offset == 0
    assert service.stats.answered == 1
    assert service.trouble == ""
    assert threading.active_count() == before
    assert time.monotonic() - began < 10


def test_who_waits_lets_time_pass(world: RequestWorld) -> None:
    doubles(world, takes=10)
    with world.requester("work") as requester:
        pending = requester.request(double, 4)
        with pytest.raises(roq.Unavailable, match=r"no response of stock\.double within 9 s"):
            pending.result(9)
        assert seconds(world) == 9
        assert pending.result(2) == 8
        assert seconds(world) == 10
        assert pending.future().result(0) == 8
        assert requester.trouble == ""
    assert requester.open == 0


def test_handlers_that_are_async_or_take_batches(world: RequestWorld) -> None:
    service = world.service("billing")
    ended: list[tuple[float, int]] = []
    sizes: list[int] = []

    @service.handler(again)
    async def handle(order: Order, context: roq.RequestContext) -> Invoice:
        await asyncio.sleep(order.number)
        ended.append((seconds(world), order.number))
        return Invoice(order.number)

    @service.handler(once, batch=3)
    def handle_all(
        orders: list[Order], contexts: list[roq.RequestContext]
    ) -> list[Invoice | Exception]:
        sizes.append(len(orders))
        return [Invoice(each.number) if each.number else ValueError("none") for each in orders]

    stock = world.service("stock")

    @stock.handler(double, batch=10)
    async def double_all(numbers: list[int], contexts: list[roq.RequestContext]) -> list[int]:
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        return [2 * each for each in numbers]

    requester = world.requester()
    some = [requester.request(again, Order(number)) for number in (3, 1, 2)]
    assert [each.result(10).total for each in some] == [3, 1, 2]
    assert ended == [(1.0, 1), (2.0, 2), (3.0, 3)]
    error, *there = requester.request_many(once, map(Order, range(5))).results(5)
    assert isinstance(error, roq.RequestFailed)
    assert "ValueError: none" in str(error)
    assert there == [Invoice(number) for number in range(1, 5)]
    assert sizes == [3, 2]
    assert requester.request_many(double, range(4)).result(5) == [0, 2, 4, 6]


def test_so_many_run_at_once_as_there_are_threads(world: RequestWorld) -> None:
    service = world.service("stock", threads=2)
    running, most = 0, 0

    @service.handler(double)
    def handle(number: int, context: roq.RequestContext) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        world.sleep(1)
        running -= 1
        return number

    many = world.requester().request_many(double, range(6))
    assert many.result(10) == list(range(6))
    assert most == 2
    assert seconds(world) == 3


def test_what_fails_is_run_again_after_its_time(world: RequestWorld) -> None:
    service = world.service("stock", retry_on="TimeoutError", retries=3, retry=10)
    at: list[float] = []

    @service.handler(double)
    def handle(number: int, context: roq.RequestContext) -> int:
        at.append(seconds(world))
        if number:
            raise ValueError("for good")
        if len(at) < 3:
            raise TimeoutError
        return number

    requester = world.requester()
    assert requester.request(double, 0).result() == 0
    first, second, third = at
    assert first == 0
    assert 10 <= second <= 13
    assert 20 <= third - second <= 26, "doubled, and up to a quarter more"
    with pytest.raises(roq.RequestFailed, match="for good"):
        requester.request(double, 2).result()


def test_times_are_over_on_the_clock(world: RequestWorld) -> None:
    doubles(world, takes=100)
    requester = world.requester(settings={"result_within": 50, "keep_result": 20})
    short, long = requester.request(double, 1, within=5), requester.request(double, 1)
    world.advance(6)
    assert (short.state, long.state) == ("late", "pending")
    world.advance(45)
    assert long.state == "late"
    with pytest.raises(roq.RequestLate):
        long.result(0)


def test_a_response_is_kept_for_its_life(world: RequestWorld) -> None:
    doubles(world)
    requester = world.requester(collect=False, settings={"keep_result": 20})
    one, other = requester.request(double, 1), requester.request(double, 2)
    world.advance(15)
    assert world.response(double, one.id).result(1) == 2
    world.advance(10)
    with pytest.raises(roq.ResponseExpired):
        world.response(double, other.id).result(1)
    with pytest.raises(roq.ResponseRetrieved):
        world.response(double, one.id).result(1)
    with pytest.raises(roq.NeverRequested):
        world.response(double, "work/x1-1-99-0").result(1)


def test_who_is_cancelled_is_told(world: RequestWorld) -> None:
    service = world.service("stock")
    seen: list[bool] = []

    @service.handler(double)
    def handle(number: int, context: roq.RequestContext) -> int:
        for _ in range(3):
            seen.append(context.cancelled)
            world.sleep(2)
        return number

    pending = world.requester().request(double, 1)
    world.advance(3)
    pending.cancel()
    world.advance(5)
    assert pending.state == "cancelled"
    assert seen == [False, False, True]
    assert service.stats.lost == 1


def test_an_instance_that_dies(world: RequestWorld) -> None:
    ran: list[str] = []

    def instance(name: str) -> roq.Service:
        service = world.service("billing", instance=name)

        def handle(order: Order, context: roq.RequestContext) -> Invoice:
            ran.append(f"{name} begins")
            world.sleep(5)
            ran.append(f"{name} ends")
            return Invoice(context.attempt)

        service.handler(again)(handle)
        service.handler(once)(handle)
        service.start()
        return service

    first = instance("a")
    requester = world.requester()
    idempotent, other = requester.request(again, Order(1)), requester.request(once, Order(2))
    world.advance(2)
    second = instance("b")
    world.kill(first)
    world.advance(2)
    assert ran == ["a begins", "a begins", "b begins"], "elsewhere within two seconds"
    assert idempotent.result(10) == Invoice(2)
    with pytest.raises(roq.RequestUnknown):
        other.result(10)
    assert ran[3:] == ["b ends"], "who is dead does nothing more"
    assert second.stats.answered == 1
    world.kill(second)
    with pytest.raises(roq.RequestDiscarded, match="no instance of service billing is registered"):
        requester.request(again, Order(3)).result()


def test_answers_that_are_lost_are_told_again(world: RequestWorld) -> None:
    service = world.service("billing")

    def handle(order: Order, context: roq.RequestContext) -> Invoice:
        world.sleep(1)
        return Invoice(order.number)

    service.handler(once)(handle)
    service.handler(again)(handle)
    requester = world.requester()
    pending, other = requester.request(once, Order(1)), requester.request(again, Order(2))
    world.advance(0.5)
    world.cut(service, 1.5)  # it answers meanwhile
    world.advance(1)
    assert service.stats.answered == 2
    assert pending.state == other.state == "pending"
    assert (pending.result(5).total, pending.attempts) == (1, 1), "it comes back, and tells it"
    assert (other.result(5).total, other.attempts) == (2, 2), "it may run again, and did"
    began = seconds(world)
    world.cut(requester, 3)
    late = requester.request(once, Order(3))
    assert late.result(10).total == 3
    assert seconds(world) >= began + 3
    left = requester.request(once, Order(4))
    world.advance(0.5)
    world.kill(requester)
    world.advance(5)
    assert not left.done()
    with pytest.raises(roq.Closed, match="has killed it"):
        left.result()
    requester.close()
    assert world.response(once, left.id).result(5).total == 4


def test_who_is_cut_off_is_not_taken_in(world: RequestWorld) -> None:
    requester, service = world.requester(), doubles(world)
    world.cut(service, 11)
    with pytest.raises(roq.Unavailable, match="service stock was not taken in: exchange x1"):
        service.start()
    world.cut(requester, 11)
    with pytest.raises(roq.Unavailable, match="have not answered in 10 s: the test has cut it off"):
        requester.request(double, 1)
    service = doubles(world)
    assert requester.request(double, 1).result() == 2
    world.kill(service)
    with service:
        pass
    service.drain()


def test_delayed_requests_come_at_their_time(world: RequestWorld) -> None:
    doubles(world)
    requester = world.requester()
    one = requester.request(double, 1, delay=3_600)
    other = requester.request(double, 2, delay=world.now + timedelta(minutes=1))
    world.advance(59)
    assert not other.done()
    world.advance(2)
    assert other.state == "done"
    assert not one.done()
    world.advance(3_600 - 62)
    assert not one.done()
    world.advance(2)
    assert one.result(0) == 2


def test_a_handler_that_makes_requests_gives_them_its_time(world: RequestWorld) -> None:
    doubles(world, takes=2)
    service = world.service("billing")
    requester, aside = world.requester(), world.async_requester()
    left: list[float] = []

    @service.handler(again)
    def handle(order: Order, context: roq.RequestContext) -> Invoice:
        assert context.headers == {"who": "me"}
        inner = requester.request(double, order.number)
        total = inner.result()
        left.append(round(context.remaining, 3))
        return Invoice(total)

    @service.handler(once)
    async def handle_aside(order: Order, context: roq.RequestContext) -> Invoice:
        inner = await aside.request(double, order.number)
        return Invoice(await inner)

    outer = requester.request(again, Order(5), within=10, headers={"who": "me"})
    other = requester.request(once, Order(6), within=1)
    assert outer.result() == Invoice(10)
    assert left == [8.0]
    with pytest.raises(roq.RequestLate):
        other.result()

    async def scenario() -> int:
        began = asyncio.get_running_loop().time()
        pending = await aside.request(once, Order(8))
        return (await pending).total + round(asyncio.get_running_loop().time() - began)

    assert world.run(scenario()) == 18


def test_services_that_a_coroutine_or_a_handler_makes_start_by_themselves(
    world: RequestWorld,
) -> None:
    aside = world.async_requester()

    async def scenario() -> int:
        service = world.service("billing")
        await asyncio.sleep(1)  # without handlers it does not begin

        @service.handler(again)
        def handle(order: Order, context: roq.RequestContext) -> Invoice:
            doubles(world)
            return Invoice(world.requester().request(double, order.number).result(5))

        pending = await aside.request(again, Order(4), within=10)
        return (await pending).total

    assert world.run(scenario()) == 8
    assert seconds(world) < 2


def test_a_service_that_a_coroutine_makes_and_that_cannot_start_is_told_where_time_passes(
    world: RequestWorld,
) -> None:
    async def scenario() -> None:
        service = world.service("stock", timeout=3)
        service.handler(double)(lambda number, context: number)
        world.cut(service, 60)
        await asyncio.sleep(10)

    with pytest.raises(roq.Unavailable, match="service stock was not taken in"):
        world.run(scenario())


def test_who_is_available_and_who_ends(world: RequestWorld) -> None:
    service, other = doubles(world), world.service("billing", available=lambda state: state.flag)
    other.handler(again)(lambda order, context: Invoice(order.number))
    service.flag(available=False)
    other.flag(available=False)
    requester = world.requester()
    one, two = requester.request(double, 1), requester.request(again, Order(1))
    world.advance(2)
    assert not one.done()
    assert not two.done()
    service.flag(available=True)
    assert one.result(5) == 2
    with pytest.raises(roq.RequestDiscarded, match="availability function says so"):
        two.result()
    service.drain()
    receipt = requester.send(double, 3)
    assert receipt.result(1).ok
    with pytest.raises(roq.RequestDiscarded, match="no instance of service stock is registered"):
        requester.request(double, 1).result()


def test_the_same_happens_each_time() -> None:
    def history() -> list[tuple[float, str, int]]:
        seen: list[tuple[float, str, int]] = []
        with roq.testing.requests(begin=BEGIN) as world:
            for name in "abc":
                service = world.service("stock", instance=name, retry_on="odd", threads=2)

                @service.handler(double)
                def handle(number: int, context: roq.RequestContext, name: str = name) -> int:
                    seen.append((seconds(world), name, number))
                    world.sleep(0.1 * number)
                    if number % 2 and context.attempt == 1:
                        raise ValueError("odd")
                    return number

            many = world.requester().request_many(double, range(20))
            world.advance(1)
            world.kill(service)
            many.results(30)
        return seen

    first = history()
    assert len(first) >= 25
    assert {name for _, name, _ in first} == set("abc")
    assert history() == first


def test_what_callbacks_raise_is_raised_where_time_passes(world: RequestWorld) -> None:
    doubles(world)
    requester = world.requester()
    seen: list[object] = []

    def check(done: roq.Pending[int]) -> None:
        seen.append((done.result(), requester.request(double, 8).result(5)))
        assert done.result() == 3

    requester.request(double, 1).on_done(check)
    with pytest.raises(AssertionError):
        world.advance(1)
    world.advance(1)
    assert seen == [(2, 16)]


def test_what_would_wait_for_real_says_so(world: RequestWorld) -> None:
    service = world.service(
        "billing", available=lambda _: not requester.request(double, 1).result()
    )
    requester = world.requester()
    doubles(world, takes=1)

    @service.handler(again)
    async def handle(order: Order, context: roq.RequestContext) -> Invoice:
        return Invoice(requester.request(double, 1).result())

    with pytest.raises(roq.InvalidRequest, match="waits for a signal"):
        service.run()
    with pytest.raises(roq.RequestDiscarded, match="does not wait for anything"):
        requester.request(again, Order(1)).result()
    world.kill(service)
    service = world.service("billing")
    service.handler(again)(handle)
    with pytest.raises(roq.RequestFailed, match="waits in an event loop"):
        requester.request(again, Order(1)).result()
    for wrong in (
        lambda: world.advance(-1), lambda: world.service("s", "other"),
        lambda: world.requester("other"), lambda: world.response(double, "other/x1-1-0-0"),
        lambda: world.kill(roq.testing.requests().__enter__().requester()),
    ):  # fmt: skip
        with pytest.raises(roq.InvalidRequest):
            wrong()


def test_a_handler_that_really_waits_is_named() -> None:
    gate = threading.Event()
    with roq.testing.requests(patience=0.2) as world:
        service = world.service("stock")
        service.handler(double)(lambda number, context: gate.wait(20))
        pending = world.requester().request(double, 1)
        with pytest.raises(roq.InvalidRequest, match=r"has not come back for 0.2 s"):
            world.advance(1)
        gate.set()
        assert not pending.done()
    with pytest.raises(roq.Closed, match="at the end of its block"):
        pending.result()


def test_a_time_has_a_zone() -> None:
    with pytest.raises(roq.InvalidRequest, match="time zone"):
        roq.testing.requests(begin=datetime(2030, 1, 1)).__enter__()  # noqa: DTZ001 - on purpose


def test_the_example_of_the_document_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", REQUESTS.read_text(), re.DOTALL)
    (code,) = [each for each in blocks if "roq.testing" in each]
    names: dict[str, object] = {"roq": roq, "create": again, "Order": Order, "Invoice": Invoice}
    exec(code, names)  # noqa: S102 - our own document
    tests = [each for name, each in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()  # type: ignore[operator]
