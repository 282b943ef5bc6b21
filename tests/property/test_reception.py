"""Whatever the network does, each stream arrives once and in order, or is counted as lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World

from roq.client.reading import From, Start

seeds = st.integers(0, 1 << 32)


def confirmed(world: World) -> World:
    world.subscribe()
    world.run(0.1)
    assert world.reception.confirmed
    return world


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_everything_arrives_once_and_in_order(seed: int) -> None:
    world = confirmed(World(seed))
    for _ in range(120):
        world.step()
    world.heal()
    assert world.payloads() == world.wanted()
    stats = world.reception.stats()
    assert (stats.counts.lost, stats.gaps, stats.held_bytes) == (0, 0, 0)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_only_what_was_asked_for_arrives(seed: int) -> None:
    world = confirmed(World(seed, prefixes=(b"b.",)))
    for _ in range(100):
        world.step()
    world.heal()
    assert world.payloads() == world.wanted()


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_a_reader_from_the_earliest_gets_what_was_there_before_it(seed: int) -> None:
    world = World(seed, start=Start(From.EARLIEST), drop=0.0, cuts=False)
    for _ in range(60):
        world.step()
    confirmed(world)
    world.drop, world.cuts = 0.1, True
    for _ in range(40):
        world.step()
    world.heal()
    assert world.payloads() == world.wanted()
    assert world.reception.stats().counts.lost == 0


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_a_reader_of_the_latest_gets_exactly_what_follows(seed: int) -> None:
    world = World(seed, drop=0.0, cuts=False)
    for _ in range(60):
        world.step()
    confirmed(world)
    before = {key: len(payloads) for key, payloads in world.sent.items()}
    world.drop, world.cuts = 0.1, True
    for _ in range(60):
        world.step()
    world.heal()
    expected = {
        key: payloads[before.get(key, 0) :]
        for key, payloads in world.sent.items()
        if len(payloads) > before.get(key, 0)
    }
    assert world.payloads() == expected
    assert world.reception.stats().counts.lost == 0


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_little_memory_for_waiting_batches_changes_nothing(seed: int) -> None:
    world = confirmed(World(seed, held_bytes_max=1_500, drop=0.3))
    for _ in range(120):
        world.step()
    world.heal()
    assert world.payloads() == world.wanted()
    assert world.reception.stats().counts.lost == 0


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_what_has_left_a_small_ring_is_counted_and_nothing_hangs(seed: int) -> None:
    world = confirmed(World(seed, ring_bytes=3_000, drop=0.4))
    for _ in range(120):
        world.step()
    world.heal(12.0)
    # A last message of each stream shows what its predecessors have come to.
    for author in world.authors:
        for topic in world.topics:
            world.publish(author, topic, [b"last"])
            world.run(0.02)
    world.heal(12.0)
    assert not world.reception.merge.waiting
    received = 0
    for key, log in world.received.items():
        sequences = [sequence for sequence, _ in log]
        assert sequences == sorted(set(sequences))
        sent = world.sent[key]
        assert all(sent[sequence] == payload for sequence, payload in log)
        received += len(log)
    counts = world.reception.stats().counts
    assert received + counts.lost == sum(len(payloads) for payloads in world.sent.values())


@pytest.mark.parametrize("switch", ["repair", "check_duplicates"])
def test_without_repair_or_duplicate_check_the_same_histories_fail(switch: str) -> None:
    failures = 0
    for seed in range(6):
        world = World(seed, **{switch: False})  # type: ignore[arg-type]
        world.subscribe()
        world.run(0.1)
        for _ in range(120):
            world.step()
        world.heal()
        failures += world.payloads() != world.wanted()
    assert failures >= 5
