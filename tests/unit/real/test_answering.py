"""The judge of requests finds what never may be: each rule is broken once."""

from __future__ import annotations

from itertools import count

import pytest

from roq.client.request.pending import EXCHANGE_GONE
from roq.protocol.requesting import DELAYED_FROM
from roq.simulation.real import answering
from roq.simulation.real.answering import Answering
from roq.simulation.real.instance import KEEP_SECONDS
from roq.simulation.real.journal import Accepted, Asked, Begun, Left, Present, Ran, Told
from roq.simulation.real.judge import Judge

ID = "q/x1-1-7-0"
WITHIN = 5.0


class Play:
    """Records of one request, a second apart."""

    def __init__(self, *, durable: bool = True, once: bool = True) -> None:
        self.judged = Answering(durable=durable)
        self.now = 0.0
        self.once = once
        self.cancels = False
        self.asks = count(1)

    def tick(self, seconds: float = 1.0) -> float:
        self.now += seconds
        return self.now

    def asked(self, by: str = "r") -> Play:
        self.judged.take(by, Asked(self.tick(), ["t"], self.once, WITHIN, self.cancels))
        return self

    def accepted(self, id_: str = ID) -> Play:
        self.judged.take("r", Accepted(self.tick(), "t", id_))
        return self

    def runs(self, run: str, lease: int, id_: str = ID, ends: int | None = None) -> Play:
        self.judged.take(run, Begun(self.tick(), "t", id_, run, lease))
        ended_by = lease if ends is None else ends
        if ended_by >= 0:
            self.judged.take(run, Ran(self.tick(), "t", run, ended_by))
        return self

    def told(
        self, state: str, run: str = "", *, by: str = "r", id_: str = ID, ask: int = 0,
        text: str = "",
    ) -> Play:  # fmt: skip
        told = Told(self.tick(), "t", ask or next(self.asks), id_, state, run, text)
        self.judged.take(by, told)
        return self

    def found(self) -> str:
        """What is wrong, without which request it is."""
        now = self.tick(answering.SETTLE_SECONDS + 1)
        self.judged.take("z", Asked(now, ["later"], False, WITHIN))
        assert self.judged.check() == [], "other journals may not be read so far"
        return "; ".join(each.partition("): ")[2] for each in self.judged.check())


def begun(*, durable: bool = True, once: bool = True) -> Play:
    return Play(durable=durable, once=once).asked().accepted()


def test_a_response_that_comes_once_is_right() -> None:
    play = begun().runs("a", 1).told("done", "a")
    assert play.found() == ""
    counts = play.judged.counts
    assert (counts["made"], counts["accepted"], counts["done"], counts["runs"]) == (2, 1, 1, 1)


def test_it_does_not_matter_whose_journal_is_read_first() -> None:
    play = Play().runs("a", 1).told("done", "a").accepted().asked()
    assert play.found() == ""
    assert play.judged.pending(play.now) == []


def test_others_may_hear_the_same_or_that_it_was_fetched() -> None:
    play = begun().runs("a", 1).told("done", "a").told("done", "a", by="s")
    assert play.told("retrieved", by="s").found() == ""


def test_two_ends() -> None:
    play = begun().runs("a", 1).told("done", "a").told("unknown", by="s")
    assert play.found() == "r was told that it is done (a), and s that it is unknown (-)"


def test_two_responses() -> None:
    play = begun(once=False).runs("a", 1).runs("b", 2).told("done", "b").told("done", "a", by="s")
    assert play.found() == "r was told that it is done (b), and s that it is done (a)"


def test_a_callback_that_is_called_twice() -> None:
    play = begun().runs("a", 1).told("done", "a", ask=5).told("done", "a", ask=5)
    assert play.found() == "callback 5 of r was called 2 times"


def test_the_answer_of_an_outdated_attempt() -> None:
    play = begun(once=False).runs("a", 1).runs("b", 2).told("done", "a")
    wanted = "its response is of run a by lease 1, while b had 2, r was told"
    assert play.found() == wanted
    held_on = begun(once=False).runs("b", 2).runs("a", 1, ends=3).told("done", "a")
    assert held_on.found() == ""  # it came back before anybody else had it
    back = begun(once=False).runs("a", 1, ends=1).runs("b", 2, ends=0).told("done", "a")
    assert back.found() == ""  # b has lost it, and a, which came back, has a lease again


def test_a_response_of_no_run() -> None:
    assert begun().told("done", "a").found() == (
        "its response is of run a, which is none of its runs, r was told"
    )
    assert begun().told("failed").found() == ""  # its instance was not asked: it cannot be read


def test_the_response_of_another_request() -> None:
    play = begun().runs("a", 1, id_="q/x1-1-8-0").told("done", "a")
    assert play.found() == ("its response is of run a, which was one of q/x1-1-8-0, r was told")


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_an_answer_outlives_its_volatile_exchange_if_it_may_run_again(
    *, durable: bool, once: bool
) -> None:
    play = begun(durable=durable, once=once).runs("a", 1, id_="q/x1-1-0-0").told("done", "a")
    right = not durable and not once
    assert (play.found() == "") is right


def test_what_must_not_be_begun_twice() -> None:
    play = begun().runs("a", 1).runs("b", 2).told("unknown")
    assert play.found() == "it was begun 2 times, and must not be: a, b"
    assert begun(once=False).runs("a", 1).runs("b", 2).told("unknown").found() == ""


@pytest.mark.parametrize("durable", [False, True])
def test_one_that_stands_in_two_logs_may_be_begun_twice_if_they_are_volatile(
    *, durable: bool
) -> None:
    play = begun(durable=durable).runs("a", 1).runs("b", 2, id_="q/x2-1-0-0").told("unknown")
    assert bool(play.found()) is durable


@pytest.mark.parametrize("durable", [False, True])
def test_a_delayed_one_has_one_id_wherever_it_stands_twice(*, durable: bool) -> None:
    delayed = f"q/x1-1-{DELAYED_FROM + 7}-0"
    play = Play(durable=durable).asked().runs("a", 1, id_=delayed).told("done", "a", id_=delayed)
    play.accepted(delayed).runs("b", 2, id_=delayed)
    assert bool(play.found()) is durable


def test_what_nobody_has_taken_has_not_begun() -> None:
    play = begun().runs("a", 1).told("discarded")
    assert play.found() == "it was begun, and nobody has taken it, r was told"
    assert begun(once=False).runs("a", 1).told("discarded").found() == ""


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("never", "it was accepted, and there was no such request"),
        ("lost", "its exchange is gone with a log on disk: lost"),
        ("unknown", "its exchange is gone with a log on disk: unknown"),
        ("forgotten", "it is forgotten after 2.0 s"),
        ("expired", "nobody has fetched it in time, after 2.0 s"),
        ("retrieved", "it was fetched, and nobody has it"),
        ("late", "it is late after 2.0 s of 5"),
        ("cancelled", "nobody has cancelled it"),
    ],
)
def test_what_who_asks_later_must_not_hear(state: str, why: str) -> None:
    assert begun().told(state, text=EXCHANGE_GONE).found() == f"{why}, r was told"


def test_what_he_may_hear() -> None:
    late = begun()
    late.tick(KEEP_SECONDS)
    assert late.told("expired").found() == ""
    assert begun(durable=False).told("lost", text=EXCHANGE_GONE).found() == ""
    assert begun().told("unknown", text="its instance was lost").found() == ""
    known = begun().told("discarded")
    assert known.told("lost", by="s", text=EXCHANGE_GONE).found() == ""
    late = begun()
    late.tick(WITHIN)
    assert late.told("late").found() == ""
    cancelled = Play()
    cancelled.cancels = True
    assert cancelled.asked().accepted().told("cancelled").found() == ""


def test_what_is_accepted_and_never_ends() -> None:
    play = begun().told("unavailable")
    assert play.judged.pending(play.now) == [f"t ({ID}) has not ended, for r"]
    assert play.judged.pending(play.now - 2) == []  # it was accepted after that
    assert play.found() == ""
    play = begun()
    play.tick(answering.PENDING_SECONDS + 1)
    play.judged.take("z", Asked(play.now, ["later"], False, WITHIN))
    assert play.judged.check() == ["request t was accepted, and has not ended"]
    assert play.judged.check() == []


def test_what_is_made_and_neither_accepted_nor_refused() -> None:
    for state, gone, wrong in (("", "", 1), ("refused", "", 0), ("", "r", 0)):
        play = Play().asked()
        if state:
            play.told(state, id_="")
        play.judged.end(gone)
        play.tick(answering.PENDING_SECONDS + 1)
        play.judged.take("z", Asked(play.now, ["later"], False, WITHIN))
        assert len(play.judged.check()) == wrong


def test_who_takes_the_place_of_one_that_has_gone_asks_for_what_it_has_left() -> None:
    play = begun()
    assert play.judged.left() == []
    play.judged.end("r")
    left = play.judged.left()
    assert left == [Left("t", ID)]
    play.judged.hand_over(left, "s")
    assert play.judged.left() == []
    play.judged.end("s")
    assert play.runs("a", 1).told("done", "a", by="s").judged.left() == left  # to compare


def test_the_judge_of_all_counts_what_is_wrong() -> None:
    judge = Judge()
    judge.requests["q"] = Answering(durable=True)
    judge.take("r", "q", "", Present(0.0, "r"))
    judge.take("r", "q", "", Asked(1.0, ["t", "u"], False, WITHIN))
    judge.take("r", "q", "", Accepted(2.0, "t", ID))
    assert judge.unanswered(3.0) == [f"q: t ({ID}) has not ended, for r"]
    judge.take("r", "q", "", Told(4.0, "t", 1, ID, "never", ""))
    judge.take("r", "q", "", Told(9.0, "u", 2, "", "refused", ""))
    judge.check()
    assert judge.tally.requests_wrong == 0, "not all journals may be read so far"
    judge.check()
    assert judge.tally.requests_wrong == judge.tally.violations == 1
    judge.end("r")
    left = judge.requests["q"].left()
    assert left == [Left("t", ID)]
    judge.requests["q"].hand_over(left, "s")
    judge.end("s")  # before it was connected
    assert judge.requests["q"].left() == left
