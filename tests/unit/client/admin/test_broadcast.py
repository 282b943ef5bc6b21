"""Who watches hears each change of the configuration once, from whichever manager tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from paper_managers import PaperManagers

from roq.client.admin.broadcast import QueueStatus, Watch
from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import Unavailable
from roq.protocol import broadcast
from roq.protocol.broadcast import Configuration


@pytest.fixture
def managers() -> PaperManagers:
    return PaperManagers()


@pytest.fixture
def watch(engine: Engine, managers: PaperManagers) -> Watch:
    made = Watch(engine, cast("Management", managers))
    engine.run_sync(lambda: None)
    return made


def tell(watch: Watch, *configurations: Configuration) -> None:
    for each in configurations:
        frames = broadcast.encode(each)
        watch._engine.run_sync(lambda frames=frames: watch._received(frames))


def test_a_state_that_is_told_again_is_no_change(watch: Watch) -> None:
    one = Configuration(
        version=1, queues=(broadcast.QueueStatus(Name="q", Host="h1", State=True),), hosts=("h1",)
    )  # fmt: skip
    tell(watch, one, one, Configuration(version=2))
    first, second = watch.receive(5), watch.receive(5)
    assert first is not None
    assert second is not None
    assert first.queues == (QueueStatus(name="q", host="h1", running=True),)
    assert (first.hosts, second.version) == (("h1",), 2)
    assert watch.receive(0) is None


def test_what_cannot_be_read_is_counted(watch: Watch) -> None:
    watch._engine.run_sync(lambda: watch._received([b"?"]))
    assert (watch.malformed, watch.receive(0)) == (1, None)


def test_silence_is_reason_to_ask_and_another_manager_comes_first(
    watch: Watch, managers: PaperManagers
) -> None:
    assert len(managers.asked) == 1
    watch._engine.run_sync(watch._silent)
    assert managers.addresses == ["b", "c", "a"]
    assert len(managers.asked) == 2


def test_it_asks_on_until_some_manager_answers(watch: Watch, managers: PaperManagers) -> None:
    watch._engine.run_sync(lambda: managers.asked[0].set_exception(Unavailable("nobody")))
    assert len(managers.asked) == 2
    found = SimpleNamespace(broadcast="no address")
    watch._engine.run_sync(lambda: managers.asked[1].set_result(found))
    assert (len(managers.asked), watch.malformed) == (2, 1)


def test_one_that_is_closed_asks_no_more(watch: Watch, managers: PaperManagers) -> None:
    watch.close()
    watch._engine.run_sync(watch._locate)
    assert len(managers.asked) == 1
