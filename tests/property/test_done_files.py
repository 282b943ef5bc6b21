"""Nothing leaves a log that a group has not done, whatever kills, power and disk do.

Members of some groups take, do and give back; groups come, go back and are deleted; other exchanges
have the same groups or not; processes are killed, and power is cut. In the log of a process that
begins there is everything that its groups have not done, and no group has lost anything.
"""

from __future__ import annotations

import random

import pytest
from done_log import DoneLog
from exchange_members import Consumer

from roq.log.files import LogRefused
from roq.simulation.virtual.lossy_files import LossyFiles

SEEDS = range(60)
GROUPS = ("a", "b", "g")


def live(made: DoneLog, chance: random.Random) -> None:
    """One process, as long as it lives."""
    members: dict[str, Consumer] = {}
    for _ in range(chance.randrange(5, 60)):
        match chance.randrange(10):
            case 0 | 1:
                name = chance.choice(GROUPS)
                members[name] = made.enter(name, start_us=chance.choice([0, made.time_us]))
            case 2 | 3 | 4:
                for _ in range(chance.randrange(12)):
                    made.append()
                    if chance.random() < 0.7:
                        made.write()
            case 5 | 6 | 7 if members:
                made.do(chance.choice(list(members.values())), chance.randrange(30))
            case 8 if chance.random() < 0.2 and "g" in members:
                made.order(chance.choice(["seek", "delete"]))
                del members["g"]
            case _:
                made.same = chance.random() < 0.9
                if chance.random() < 0.5:
                    made.sync()
                made.now += chance.choice([0.0, 5.0, 40.0])
                for _ in range(chance.randrange(6)):
                    made.tick()
                    if chance.random() < 0.7:
                        made.write()
        check(made)


def check(made: DoneLog) -> None:
    for group in made.there.core.consumers.groups:
        assert made.log.floor <= group.base, (group.name, group.base)
        assert not group.expired, "something left that it had not done"


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_group_is_ever_behind_what_has_left(seed: int, ahead: bool) -> None:
    chance = random.Random(f"{seed}/{ahead}")
    files = LossyFiles()
    made = DoneLog(files, ahead=ahead)
    left = 0
    for _ in range(6):
        live(made, chance)
        left = max(left, made.log.floor)
        if chance.random() < 0.5:
            files = made.files = files.power_cut(chance)
        try:
            made.start()
        except LogRefused:
            return
        check(made)
