"""Requesters and instances in whole clusters in which everything fails; and proof that a broken
rule of requests is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from outdated import an_outdated_attempt_answers

from roq.client.request.pending import Pending
from roq.errors import RequestFailed
from roq.log.open_requests import OpenRequests
from roq.log.outcomes import OutcomeStore
from roq.model import FLUSH, VOLATILE
from roq.simulation.experiments.survival import Wish, try_seeds
from roq.simulation.virtual.kinds import KINDS
from roq.simulation.virtual.trial import Case, Trial
from roq.simulation.virtual.troubles import Trouble

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("durability", [VOLATILE, FLUSH])
def test_requests_end_once_whatever_fails(durability: str) -> None:
    looked = Counter[str]()
    for result in try_seeds([1], wish := Wish(durability=durability, asked=True)):
        assert not result.broken, f"{result.broken[0]}\n{wish.replay_command(result.seed)}"
        looked.update(result.checked)
    assert looked["a response is that of the valid attempt"] > 30
    assert looked["what must not be begun again is not"] > 30
    assert looked["a callback is called once"] > 30


def test_seeds_that_once_went_wrong_keep_all_promises() -> None:
    """780574: a service came to an exchange when its first requests were too late already.
    810863: a subscriber without a monitor had not heard of an exchange that brought the rest.
    950058: what a service had before it was late, as clocks jumped, and was done nonetheless.
    1440202: publishers came to an exchange that accepted nothing, as it was about to be stopped.
    2000815: an exchange had taken messages, whose making the next manager gave up."""
    wish = Wish(durability=FLUSH, shared=True, asked=True)
    for result in try_seeds([780574, 810863, 950058, 1440202, 2000815], wish):
        assert not result.broken, f"{result.broken[0]}\n{wish.replay_command(result.seed)}"


def test_without_troubles_every_request_is_answered() -> None:
    wish = Wish(without=KINDS, asked=True)
    trial = Trial(wish.case(1))
    assert not trial.run().broken
    asking = trial.cluster.watch.asking
    states = Counter(each.find().state for each in asking.asked.values() if each.find())
    assert states["done"] > 0.8 * states.total() > 30, states
    assert set(states) <= {"done", "failed", "late", "cancelled"}
    assert states["failed"]
    for one in filter(None, (each.find() for each in asking.asked.values())):
        if one.state == "failed":  # without names of files: a seed has one history anywhere
            with pytest.raises(RequestFailed, match=r": Failing: (for good|once more)$"):
                one.result()


# --- rules that are broken ------------------------------------------------------------------------


def what_has_begun_is_not_noted(patch: Patch) -> None:
    patch.setattr(OpenRequests, "begin_once", lambda *_given: None)


def outcomes_do_not_outlive_the_process(patch: Patch) -> None:
    patch.setattr(OutcomeStore, "take_changes", lambda _store: ([], []))


def a_callback_is_not_forgotten(patch: Patch) -> None:
    ring = Pending._ring

    def twice(self: Pending[bytes], call: Callable[[], None]) -> None:
        ring(self, call)
        ring(self, call)

    patch.setattr(Pending, "_ring", twice)


CASES: Final = {
    an_outdated_attempt_answers: ("is answered by", "cut-member", 1.0, VOLATILE),
    what_has_begun_is_not_noted: ("has begun at", "pause-member", 5.0, VOLATILE),
    outcomes_do_not_outlive_the_process: ("when asked for", "kill-exchange", 0.2, FLUSH),
    a_callback_is_not_forgotten: ("is called again", "clock", 0.0, VOLATILE),
}


@pytest.mark.parametrize("rule", CASES, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_noticed(
    rule: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(monkeypatch)
    expected, kind, seconds, durability = CASES[rule]
    told: list[str] = []
    for seed in range(12):
        case = Case.draw(seed, durability=durability, asked=True)
        plan = [Trouble(0.5 * each, kind, seconds, 100 * seed + each) for each in range(4)]
        case = replace(case, plan=plan, seconds=4.0, publishers=1, exchanges=1, sparse=0,
                       patient=False, requesters=1, services=3)  # fmt: skip
        told += Trial(case).run().broken
        if any(expected in text for text in told):
            return
    pytest.fail(f"nobody has noticed: {told}")
