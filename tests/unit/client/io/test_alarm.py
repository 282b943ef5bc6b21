"""The one timer of a publisher."""

from __future__ import annotations

import threading

from roq.client.io.alarm import PUT_OFF_MAX, Alarm
from roq.client.io.engine import Engine
from roq.client.io.lock import ClientLock


def test_the_earliest_time_that_anybody_wants_is_the_one() -> None:
    engine, lock, rung = Engine("alarm"), threading.Lock(), list[float]()

    def ring() -> None:
        with lock:
            alarm.rung()
            rung.append(engine.reactor.now())
        done.set()

    done = threading.Event()
    alarm = Alarm(engine, lock, ring)
    engine.start()
    try:
        begun = engine.reactor.now()
        with lock:
            alarm.need(begun + 60.0)
            alarm.need(begun + 0.02)
            alarm.need(begun + 30.0)
        assert done.wait(10)
        assert rung[0] < begun + 10.0
    finally:
        engine.close()


def test_after_it_has_rung_it_is_set_anew_or_not_at_all() -> None:
    engine, lock = Engine("alarm"), threading.Lock()
    again = threading.Event()

    def ring() -> None:
        with lock:
            alarm.rung()
            alarm.need(0.0)  # the I/O thread is here: it need not be woken
            alarm.set(engine.reactor.now() + (0.01 if not again.is_set() else float("inf")))
        if not again.is_set():
            again.set()
        else:
            over.set()

    over = threading.Event()
    alarm = Alarm(engine, lock, ring)
    engine.start()
    try:
        with lock:
            alarm.need(0.0)
        assert over.wait(10)
    finally:
        engine.close()


def test_who_has_the_lock_is_left_alone_a_few_times_and_then_waited_for() -> None:
    engine, guard, tries = Engine("alarm"), ClientLock("the alarm"), list[bool]()
    over = threading.Event()

    def look() -> bool:
        alarm.rung()
        over.set()
        return True

    def ring() -> None:
        tries.append(guard.held())
        if len(tries) == PUT_OFF_MAX + 1:
            asked.set()
        alarm.with_lock(guard, look)

    asked = threading.Event()
    alarm = Alarm(engine, guard.lock, ring)
    engine.start()
    try:
        with guard.lock:
            engine.call_soon(ring)
            assert asked.wait(10)
            assert not over.is_set()
        assert over.wait(10)
    finally:
        engine.close()


def test_who_rings_it_by_hand_has_it_ring_no_more_often() -> None:
    engine, rung = Engine("alarm"), list[int]()
    lock = threading.Lock()
    alarm = Alarm(engine, lock, lambda: rung.append(1))
    engine.start()

    def by_hand() -> None:
        alarm.set(at := engine.reactor.now() + 0.001)
        alarm.rung()
        alarm.set(at)
        engine.reactor.call_at(at + 0.001, over.set)

    over = threading.Event()
    try:
        engine.call_soon(by_hand)
        assert over.wait(10)
        assert len(rung) == 1
    finally:
        engine.close()
