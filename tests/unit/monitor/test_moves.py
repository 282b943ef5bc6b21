import pytest
from monitor_driver import EPOCH, info, pushes
from monitor_queue import Queue, Script

from roq.model import PublisherId, publisher_epoch
from roq.monitor.moves import RELOCATE_TRIES, Relocation
from roq.policy.snapshot import Move, Stripe
from roq.protocol import kpi
from roq.protocol.control import Assigned, Relocate, Relocated

P, Q = b"p", b"q"


def scripted(exchanges: int = 2) -> tuple[Queue, Script]:
    """Two exchanges that all know; publishers p and q at the first one and the second one."""
    script = Script()
    queue = Queue(exchanges, policy=script)
    queue.add_publisher("p", 100)
    queue.add_publisher("q", 100)
    queue.periods(2)
    queue.effects.clear()
    return queue, script


def test_a_publisher_is_told_where_to_go_and_under_which_epoch() -> None:
    queue, script = scripted()
    before = queue.publishers["p"].epoch
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    [told] = queue.publishers["p"].told
    assert (told.publisher, told.exchanges) == (P, [info(2)])
    assert told.epoch > before
    assert queue.placed() == {1: [], 2: ["p", "q"]}


def test_the_exchange_that_was_left_is_told_who_has_passed() -> None:
    queue, script = scripted()
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    [passed] = queue.exchanges[1].passed
    assert (passed.publisher, passed.epoch) == (P, queue.publishers["p"].epoch)
    assert passed.addresses == [info(2).data]
    assert queue.exchanges[2].passed == []


def test_a_move_is_told_on_the_statistics_stream_from_its_start_to_its_end() -> None:
    queue, script = scripted()
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    started, accepted = queue.documents(kpi.MoveKpi)
    assert (started.state, accepted.state) == ("started", "accepted")
    for document in (started, accepted):
        assert (document.publisher, document.sources, document.targets) == (P.hex(), [1], [2])
        assert document.reason == "because"
        assert document.bytes_per_second == pytest.approx(100)
    assert accepted.pause_ms == 2.5


def test_a_striped_publisher_counts_at_all_its_exchanges_and_leaves_what_is_left_out() -> None:
    queue, script = scripted(3)
    script.wanted = [Stripe(P, (1, 3), "too big")]
    queue.periods(1)
    assert queue.placed() == {1: ["p"], 2: ["q"], 3: ["p"]}
    assert [each.passed for each in queue.exchanges.values()] == [[], [], []]
    queue.periods(3)
    script.wanted = [Stripe(P, (2,), "not big any more")]
    queue.periods(1)
    assert queue.placed() == {1: [], 2: ["p", "q"], 3: []}
    assert [len(each.passed) for each in queue.exchanges.values()] == [1, 0, 1]


def test_a_publisher_that_says_nothing_is_told_each_period_and_then_given_up() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(RELOCATE_TRIES + 2)
    told = queue.publishers["p"].told
    assert len(told) == RELOCATE_TRIES
    assert len({each.epoch for each in told}) == 1
    assert [state for _, state, *_ in queue.moves()] == ["started", "given_up"]
    assert queue.placed() == {1: ["p"], 2: ["q"]}
    assert queue.machine._sessions.find(P).exchanges == ((1, 1),)


def test_a_publisher_that_was_given_up_is_left_alone_for_a_while() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(RELOCATE_TRIES + 2)

    def moving() -> bool:
        return script.views[-1].exchanges[0].top[0].moving

    assert moving()
    queue.periods(25)
    assert moving()
    queue.periods(10)
    assert not moving()


def test_a_publisher_that_cannot_get_there_stays_and_may_be_sent_elsewhere() -> None:
    queue, script = scripted(3)
    publisher = queue.publishers["p"]
    publisher.mood = "fails"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    assert queue.moves()[-1] == ("p", "failed", [1], [2])
    assert queue.documents(kpi.MoveKpi)[-1].reason == "connection refused"
    assert queue.placed()[1] == ["p"]
    publisher.mood = "obeys"
    queue.periods(3)
    script.wanted = [Move(P, 1, 3, "elsewhere")]
    queue.periods(1)
    first, second = publisher.told
    assert second.epoch > first.epoch
    assert queue.placed()[3] == ["p"]


def test_a_stripe_does_without_a_target_that_could_not_be_reached() -> None:
    queue, script = scripted(4)
    queue.publishers["p"].mood = "ignores"
    script.wanted = [Stripe(P, (2, 3, 4), "too big")]
    queue.periods(1)
    publisher = queue.publishers["p"]
    [first] = {each.epoch for each in publisher.told}
    publisher.mood = "obeys"
    queue.relocated(publisher, first, "failed", failed=[(3, 1)], reason="refused")
    assert queue.placed()[2] == ["p", "q"]
    assert publisher.numbers == [2, 4]
    assert publisher.epoch > first
    assert [state for name, state, *_ in queue.moves() if name == "p"] == [
        "started", "failed", "started", "accepted",
    ]  # fmt: skip


@pytest.mark.parametrize("failed", [[], [(2, 1), (3, 1)], [(3, 1)], [(9, 9)]])
def test_a_stripe_of_which_nothing_new_is_left_has_failed(failed) -> None:
    queue, script = scripted(3)
    queue.publishers["q"].mood = "ignores"
    [at] = queue.publishers["q"].numbers
    script.wanted = [Stripe(Q, (at, 3), "too big")]
    queue.periods(1)
    told = len(queue.publishers["q"].told)
    epoch = queue.publishers["q"].told[-1].epoch
    queue.relocated(queue.publishers["q"], epoch, "failed", failed=failed)
    assert len(queue.publishers["q"].told) == told
    assert queue.publishers["q"].numbers == [at]


def test_a_target_that_could_not_be_reached_takes_nobody_until_it_has_reported() -> None:
    queue, script = scripted(3)
    queue.publishers["p"].mood = "fails"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.exchanges[2].reports = False
    queue.periods(2)
    assert [each.accepting for each in script.views[-1].exchanges] == [True, False, True]
    queue.exchanges[2].reports = True
    queue.periods(1)
    assert [each.accepting for each in script.views[-1].exchanges] == [True, True, True]


def test_a_target_that_dies_during_the_move_changes_nothing_for_the_publisher() -> None:
    queue, script = scripted(3)
    publisher = queue.publishers["p"]
    publisher.mood = "ignores"  # it tries to connect
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    queue.kill(2)
    queue.periods(1)
    queue.relocated(
        publisher, publisher.told[-1].epoch, "failed", failed=[(2, 1)], reason="no answer"
    )
    queue.periods(3)
    assert [each.number for each in script.views[-1].exchanges] == [1, 3]
    assert not script.views[-1].exchanges[0].top[0].moving
    publisher.mood = "obeys"
    script.wanted = [Move(P, 1, 3, "again")]
    queue.periods(1)
    assert "p" in queue.placed()[3]


@pytest.mark.parametrize("off", [-1, 1, 1 << 27])
def test_an_answer_with_another_epoch_than_the_last_one_told_is_ignored(off) -> None:
    queue, script = scripted()
    publisher = queue.publishers["p"]
    publisher.mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    assert queue.relocated(publisher, publisher.told[0].epoch + off, "accepted") == []
    assert queue.machine._sessions.find(P).exchanges == ((1, 1),)
    assert len(queue.machine._elasticity.moves) == 1


@pytest.mark.parametrize("outcome", ["", "maybe", "ACCEPTED"])
def test_an_answer_that_says_neither_yes_nor_no_is_ignored(outcome) -> None:
    queue, script = scripted()
    publisher = queue.publishers["p"]
    publisher.mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    assert queue.relocated(publisher, publisher.told[0].epoch, outcome) == []
    assert len(queue.machine._elasticity.moves) == 1


def test_an_answer_of_somebody_who_is_not_known_is_ignored() -> None:
    queue, _ = scripted()
    message = Relocated(queue_id=b"q" * 16, publisher=b"?", epoch=5, outcome="accepted")
    assert queue.receive("stranger", message) == []


def test_a_publisher_whose_word_was_lost_has_moved_all_the_same() -> None:
    queue, script = scripted()
    publisher = queue.publishers["p"]
    publisher.mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.run(1.0)
    publisher.at, publisher.epoch = [(2, 1)], publisher.told[0].epoch
    queue.periods(2)
    assert [state for _, state, *_ in queue.moves()] == ["started", "accepted"]
    assert len(publisher.told) <= 2
    assert [each.epoch for each in queue.exchanges[1].passed] == [publisher.epoch]


def test_a_publisher_that_asks_for_an_exchange_meanwhile_ends_its_move() -> None:
    queue, script = scripted()
    publisher = queue.publishers["p"]
    publisher.mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    [assigned] = queue.attach("p", failed=[(1, 1)])
    assert isinstance(assigned, Assigned)
    assert assigned.epoch > publisher.told[0].epoch
    assert queue.moves()[-1][:2] == ("p", "failed")
    publisher.at, publisher.epoch = [(2, 1)], assigned.epoch
    queue.effects.clear()
    queue.periods(3)
    assert pushes(queue.effects, "p", Relocate) == []


def test_a_publisher_that_leaves_meanwhile_ends_its_move() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    del queue.publishers["p"]
    queue.leave("p")
    assert queue.moves()[-1][:2] == ("p", "failed")
    assert len(queue.machine._elasticity.moves) == 0


def test_the_load_of_a_publisher_on_its_way_counts_at_the_target_at_once() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "ignores"
    queue.publishers["p"].rate = 600
    queue.periods(2)
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(2)
    here, there = script.views[-1].exchanges
    assert (here.throughput, there.throughput) == pytest.approx((0, 60 * 700))
    assert here.mean + there.mean == pytest.approx(60 * (600 + 100), rel=0.25)
    newcomer = queue.attach("r")[0]
    assert isinstance(newcomer, Assigned)
    assert newcomer.exchange.number == 1


def test_after_a_move_the_load_stays_counted_once_until_reports_show_it() -> None:
    queue, script = scripted()
    script.wanted = [Move(P, 1, 2, "because")]
    queue.run(0.5)
    for _ in range(8):
        queue.periods(1)
        here, there = script.views[-1].exchanges
        assert here.throughput == pytest.approx(0, abs=60 * 26)
        assert there.throughput == pytest.approx(60 * 200, abs=60 * 26)
        assert here.mean + there.mean == pytest.approx(60 * 200, rel=0.2)


def test_whoever_has_just_come_may_go_on_and_counts_with_what_he_brought_before() -> None:
    queue, script = scripted(3)
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    queue.add_exchange()  # a round is decided before any report shows the move
    views = len(script.views)
    queue.periods(6)
    for view in script.views[views - 1 :]:
        [first, second, third, *_] = view.exchanges
        assert first.top == ()
        assert {each.id: each.moving for each in second.top} == {P: False, Q: False}
        assert [each.throughput for each in second.top] == pytest.approx([6_000, 6_000], rel=0.1)
        assert third.top == ()


def test_a_move_that_failed_counts_where_the_publisher_stayed() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "fails"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(3)
    here, there = script.views[-1].exchanges
    assert (here.throughput, there.throughput) == pytest.approx((60 * 100, 60 * 100))


def test_epochs_of_moves_and_assignments_rise_together() -> None:
    queue, script = scripted()
    first = queue.publishers["p"].epoch
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(1)
    moved = queue.publishers["p"].epoch
    [assigned] = queue.attach("p")
    assert publisher_epoch(EPOCH, 0) < first < moved < assigned.epoch


def test_several_publishers_move_in_one_round() -> None:
    queue, script = scripted()
    script.wanted = [Move(P, 1, 2, "a"), Move(Q, 2, 1, "b")]
    queue.periods(1)
    assert queue.placed() == {1: ["q"], 2: ["p"]}


X1, X2, X3 = (1, 7), (2, 7), (3, 7)


def relocation(sources: list[tuple[int, int]], targets: list[tuple[int, int]]) -> Relocation:
    return Relocation(
        publisher=PublisherId(b"p"), epoch=9, sources=tuple(sources), targets=tuple(targets),
        infos=[], load=600.0, reason="too much", repeat_at=1.0,
    )  # fmt: skip


def test_it_leaves_where_it_is_not_to_publish_any_more() -> None:
    assert relocation([X1, X2], [X2, X3]).left == [X1]
    assert relocation([X1], [X1, X2]).left == []


@pytest.mark.parametrize(
    ("sources", "targets", "changes"),
    [
        ([X1], [X2], {X1: -600.0, X2: 600.0, X3: 0.0}),
        ([X1], [X1, X2, X3], {X1: -400.0, X2: 200.0, X3: 200.0}),
        ([X1, X2], [X3], {X1: -300.0, X2: -300.0, X3: 600.0}),
    ],
)
def test_load_is_shared_evenly_and_none_of_it_is_lost(
    sources: list[tuple[int, int]],
    targets: list[tuple[int, int]],
    changes: dict[tuple[int, int], float],
) -> None:
    found = relocation(sources, targets)
    assert {key: found.change_at(key) for key in changes} == changes
    assert sum(changes.values()) == 0
