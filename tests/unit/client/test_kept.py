"""How long acknowledged batches are kept, and when they are replayed."""

from __future__ import annotations

from collections.abc import Callable

from roq.client.kept import KEEP_BYTES, KEEP_SECONDS, LEFT_SECONDS, Kept, Pile
from roq.client.outbox import Sealed, Stream
from roq.client.receipt import Receipt
from roq.runtime.sockets import HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS

X1, X2 = (1, 5), (2, 6)
PROMISED_SECONDS = 3.0
"""See docs/guarantees.md: what an exchange had acknowledged for no longer is not lost with it."""


class NoWaiter:
    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        raise AssertionError("nothing here waits")


def acknowledged(pile: Pile, at: float, size: int = 10) -> Sealed:
    sealed = Sealed(
        Stream("t", b"t"), bytes(size), link_number=1, first_sequence=0, count=1,
        receipt=Receipt(NoWaiter()), sealed_at=at,
    )  # fmt: skip
    sealed.acked_at = at
    pile.add(sealed)
    return sealed


def test_batches_are_kept_for_a_while_and_no_more_than_the_allowance() -> None:
    pile = Kept().of(X1)
    acknowledged(pile, 0.0)
    young = acknowledged(pile, 1.0)
    pile.forget(KEEP_SECONDS + 0.5)
    assert list(pile.batches) == [young]
    for _ in range(3):
        acknowledged(pile, 1.0, KEEP_BYTES // 2)
    pile.forget(1.0)
    assert pile.bytes <= KEEP_BYTES


def test_the_last_seconds_of_a_host_are_still_kept_when_its_silence_is_noticed() -> None:
    """That is when the heartbeat after its last word has not been answered in time."""
    noticed = (HEARTBEAT_MS + HEARTBEAT_TIMEOUT_MS) / 1_000
    kept = Kept()
    promised = acknowledged(kept.of(X1), -PROMISED_SECONDS)
    kept.forget(noticed)
    kept.doubt(X1, lost=True)
    assert kept.take_doubtful(frozenset({X2})) == [promised]


def test_an_exchange_in_doubt_keeps_its_pile_until_it_is_taken() -> None:
    kept = Kept()
    sealed = acknowledged(kept.of(X1), 0.0)
    kept.doubt(X1, lost=True)
    kept.forget(1000.0)
    assert kept.take_doubtful(frozenset({X1})) == []
    assert kept.take_doubtful(frozenset({X2})) == [sealed]
    assert list(kept) == []


def test_an_exchange_that_was_left_is_remembered_longer() -> None:
    kept = Kept()
    acknowledged(kept.of(X1), 0.0)
    kept.leave(X1)
    assert kept.next_deadline() == LEFT_SECONDS
    kept.forget(LEFT_SECONDS - 0.1)
    assert len(list(kept)) == 1
    kept.forget(LEFT_SECONDS + 0.1)
    assert list(kept) == []
    assert kept.next_deadline() is None


def test_only_exchanges_that_were_left_are_missed_in_the_topology() -> None:
    kept = Kept()
    kept.of(X1)
    sealed = acknowledged(kept.of(X2), 0.0)
    kept.leave(X2)
    assert not kept.doubt_missing(frozenset({X1, X2}), 1.0)
    assert kept.doubt_missing(frozenset(), 1.0)
    assert kept.take_doubtful(frozenset({X1})) == [sealed]


def test_what_is_too_old_is_not_replayed_either() -> None:
    kept = Kept()
    acknowledged(kept.of(X1), 0.0)
    kept.leave(X1)
    assert kept.doubt_missing(frozenset(), LEFT_SECONDS + 1)
    assert kept.take_doubtful(frozenset()) == []


def test_all_piles_together_are_bounded_and_the_oldest_is_cut_first() -> None:
    kept = Kept()
    first, second = kept.of(X1), kept.of(X2)
    acknowledged(first, 1.0, KEEP_BYTES // 2)
    acknowledged(second, 1.0, KEEP_BYTES // 2)
    acknowledged(second, 1.0, 100)
    kept.forget(1.0)
    assert not first.batches
    assert len(second.batches) == 2
    kept.check()


def test_an_exchange_that_is_used_again_goes_on_with_its_pile() -> None:
    kept = Kept()
    pile = kept.of(X1)
    acknowledged(pile, 0.0)
    kept.leave(X1)
    assert kept.of(X1) is pile
    assert not pile.left
    kept.clear()
    assert list(kept) == []


def test_what_an_exchange_that_was_emptied_had_acknowledged_is_not_needed() -> None:
    kept = Kept()
    acknowledged(kept.of(X1), 0.0)
    acknowledged(kept.of(X2), 0.0)
    kept.leave(X1)
    kept.absolve(frozenset({X1, X2}))
    assert not kept.doubt_missing(frozenset(), 1.0)
    assert [pile.source for pile in kept] == [X2]
    kept.doubt(X2, lost=True)
    assert kept.take_doubtful(frozenset()) == []
    assert list(kept) == []
