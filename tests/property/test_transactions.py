"""Random histories of transactions at one exchange against a model of a few lines.

Processes end in the middle, power is cut, frames are lost and doubled, producers come, go, and do
not answer. What was told to be kept stays true, all messages of a transaction are shown or none,
each once, and nothing of one that nobody has committed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from transaction_driver import Durable, half

from roq.protocol.transaction import Decision, Fate, Policy

ROUTES = (b"a", b"b", b"c")
POLICIES: tuple[Policy, ...] = ("rollback", "commit", "keep")


@dataclass
class Model:
    """What may be, and what must be.

    Attributes:
        prepared: how many messages each has that was sent.
        kept: those that were acknowledged.
        said: what anybody has said of each; its policy stands for what the exchange may say.
        told: what the exchange has told to be kept.
    """

    prepared: dict[int, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    said: dict[int, set[Decision]] = field(default_factory=dict)
    told: dict[int, Fate] = field(default_factory=dict)

    def answer(self, number: int, fate: Fate) -> None:
        assert fate is not Fate.NOT_HERE or number not in self.kept
        if fate in {Fate.COMMITTED, Fate.ROLLED_BACK}:
            assert self.told.setdefault(number, fate) is fate
            wanted = Decision.COMMIT if fate is Fate.COMMITTED else Decision.ROLLBACK
            assert wanted in self.said[number], "nobody has said so"

    def look(self, made: Durable) -> None:
        times = made.shown
        for number, count in self.prepared.items():
            shown = [times[b"%d:%d:" % (number, at)] for at in range(count)]
            assert max(shown) <= 1, "none comes twice"
            if any(shown):
                assert Decision.COMMIT in self.said[number], "nobody has committed it"
                assert self.told.get(number) is not Fate.ROLLED_BACK


def one_turn(made: Durable, model: Model, chance: random.Random, sent: dict[int, int]) -> bool:
    """Whether the process lives on; `sent`: by offset, what is acknowledged when that is kept."""
    if chance.random() < 0.4:
        prepare(made, model, chance, sent)
    for route in ROUTES:
        luck = chance.random()
        if luck < 0.1:
            made.enroll(route, publisher=chance.choice(["", "p"]))
        elif luck > 0.97:
            made.leave(route)
    if model.prepared and chance.random() < 0.4:
        said(made, model, chance, chance.choice(list(model.prepared)), b"r")
    if chance.random() < 0.2:
        made.fill()
    made.turn(chance.choice([0.0, 0.0, 0.5, 4.0, 30.0]), sync=chance.random() < 0.8)
    for end in [each for each in sent if each <= made.log.committed]:
        model.kept.add(sent.pop(end))
    asked = [(number, route) for route in ROUTES for number, _ in made.checks(route)]
    for number, route in asked:
        if chance.random() < 0.7:
            said(made, model, chance, number, route)
    told = [each for route in (*ROUTES, b"r") for each in made.fates(route)]
    for number, fate in told:
        if chance.random() < 0.8:  # or the answer is lost
            model.answer(number, fate)
    model.look(made)
    return chance.random() > 0.03


def prepare(made: Durable, model: Model, chance: random.Random, sent: dict[int, int]) -> None:
    """One more, and perhaps its frame is doubled."""
    number = len(model.prepared) + 1
    topics = tuple(chance.choice([b"t", b"u"]) for _ in range(chance.randrange(1, 4)))
    policy = chance.choice(POLICIES)
    check = chance.choice([1.0, 9.0])
    payload = half(number, topics=topics, check=check, attempts=2, patience=300.0, otherwise=policy)
    model.prepared[number] = len(topics)
    model.said[number] = set() if policy == "keep" else {Decision(policy)}
    if made.prepare(payload):
        sent[made.log.end] = number
        if chance.random() < 0.2:
            assert not made.prepare(payload, again=True), "a doubled frame"


def said(made: Durable, model: Model, chance: random.Random, number: int, route: bytes) -> None:
    decision = chance.choice(list(Decision))
    group = "g" if chance.random() < 0.9 else "foreign"
    if group == "g":
        model.said[number].add(decision)
    for _ in range(chance.choice([1, 1, 2])):
        made.say(number, decision, route, group, serial=number)


def history(seed: int) -> None:
    """One history, to its end."""
    chance = random.Random(seed)
    made, model = Durable(), Model()
    for _ in range(chance.randrange(2, 7)):
        made.jump_us = chance.choice([0, 0, 86_400_000_000, -86_400_000_000])
        made.open()
        model.look(made)
        sent: dict[int, int] = {}
        while one_turn(made, model, chance, sent):
            pass
        if chance.random() < 0.7:
            made.files = made.files.power_cut(chance)
    made.open()
    for number in sorted(model.prepared):
        model.said[number].add(Decision.COMMIT)
        model.answer(number, made.settle(number, Decision.COMMIT))
        assert number in model.told or number not in model.kept, "one that was kept has an end"
    for _ in range(100):
        made.turn(0.5)
    model.look(made)
    assert not made.table_size
    assert not len(made.core.delayed)
    for number, fate in model.told.items():
        if fate is Fate.COMMITTED:
            shown = [made.shown[b"%d:%d:" % (number, at)] for at in range(model.prepared[number])]
            assert set(shown) == {1}, "what was committed comes"


@pytest.mark.parametrize("seed", range(40))
def test_all_of_a_transaction_or_nothing_once_and_as_it_was_told(seed: int) -> None:
    history(seed)
