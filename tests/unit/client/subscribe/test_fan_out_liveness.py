"""When the fan-out is taken for lost."""

from roq.client.subscribe.fan_out_liveness import FanOutLiveness
from roq.timing import (
    ANSWERING_SECONDS,
    END_SILENT_SECONDS,
    LIVE_LOST_SECONDS,
    LIVE_SILENT_SECONDS,
)

STEP = 0.1


def lost_after(
    silence: FanOutLiveness,
    *,
    live_at: float,
    answers: bool | None,
    stands: bool = True,
    until: float,
) -> float | None:
    """Seconds of silence after which it is lost; None: it is not by then.

    Args:
        answers: whether the exchange answers questions; None: there is no connection for them.
        until: seconds.
    """
    now = live_at
    while now - live_at <= until:
        now += STEP
        answered_at = None if answers is None else now if answers else live_at
        if silence.lost(now, live_at, answered_at, stands=stands):
            return now - live_at
    return None


def test_one_that_speaks_is_not_lost() -> None:
    silence = FanOutLiveness(0.0)
    assert lost_after(silence, live_at=5.0, answers=True, until=END_SILENT_SECONDS - STEP) is None
    assert not silence.doubted
    assert lost_after(silence, live_at=7.0, answers=None, until=END_SILENT_SECONDS - STEP) is None


def test_one_that_is_silent_though_the_exchange_answers_is_lost_soon() -> None:
    after = lost_after(FanOutLiveness(0.0), live_at=5.0, answers=True, until=20.0)
    assert after is not None
    assert LIVE_LOST_SECONDS < after <= LIVE_LOST_SECONDS + 2 * STEP


def test_an_exchange_that_answers_nothing_has_much_more_time() -> None:
    after = lost_after(FanOutLiveness(0.0), live_at=5.0, answers=False, until=20.0)
    assert after is not None
    assert LIVE_SILENT_SECONDS < after <= LIVE_SILENT_SECONDS + 2 * STEP


def test_a_busy_exchange_that_goes_on_has_time_to_say_so() -> None:
    silence, live_at = FanOutLiveness(0.0), 5.0
    assert lost_after(silence, live_at=live_at, answers=False, until=10.0) is None
    assert silence.doubted
    now = live_at + 11.0
    # What it was asked when the fan-out was missed, and has answered before it was so.
    assert not silence.lost(now, live_at, live_at + END_SILENT_SECONDS, stands=True)
    assert not silence.lost(now, now, now, stands=True)
    assert not silence.doubted


def test_one_answer_is_not_enough() -> None:
    silence = FanOutLiveness(0.0)
    doubted_at = END_SILENT_SECONDS + STEP
    assert not silence.lost(doubted_at, 0.0, 0.0, stands=True)
    answered_at = doubted_at + ANSWERING_SECONDS
    assert not silence.lost(LIVE_LOST_SECONDS + 1, 0.0, answered_at - STEP, stands=True)
    assert silence.lost(LIVE_LOST_SECONDS + 1, 0.0, answered_at, stands=True)


def test_where_the_questions_have_lost_their_connection_silence_says_enough() -> None:
    after = lost_after(FanOutLiveness(0.0), live_at=5.0, answers=None, until=20.0)
    assert after is not None
    assert END_SILENT_SECONDS < after <= END_SILENT_SECONDS + 2 * STEP


def test_one_that_does_not_stand_yet_is_watched_by_others() -> None:
    for answers in (True, False, None):
        after = lost_after(
            FanOutLiveness(0.0), live_at=5.0, answers=answers, stands=False, until=20.0
        )
        assert after is not None
        assert after > LIVE_SILENT_SECONDS


def test_it_is_not_silent_before_it_is_made_nor_while_nobody_listens() -> None:
    silence = FanOutLiveness(8.0)
    assert lost_after(silence, live_at=5.0, answers=None, until=4.0) is None
    assert lost_after(silence, live_at=8.0, answers=None, until=2.0) is not None
    silence.unheard(11.0)
    assert not silence.doubted
    assert not silence.lost(11.0 + STEP, 5.0, None, stands=True)
