"""A cluster in a thread: whoever starts it gets its addresses, or hears why there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roq.errors import ConfigError, Unavailable
from roq.local import background
from roq.local.background import BackgroundCluster
from roq.local.launcher import StartFailed
from roq.local.plan import Addresses
from roq.local.settings import LocalSettings
from roq.runtime.reactor import Reactor

ADDRESSES = Addresses(
    client="127.0.0.1:1", management="127.0.0.1:2", broadcast="127.0.0.1:3",
    registry="file:/x", hosts=["127.0.0.1"], managers=["127.0.0.1:1"],
)  # fmt: skip


class PaperLauncher:
    """Starts nothing, and ends as it is told to."""

    outcome: Addresses | Exception | None = ADDRESSES
    stops = True
    made: PaperLauncher

    def __init__(self, reactor: Reactor, _: LocalSettings, **told: Callable[[Any], None]) -> None:
        PaperLauncher.made = self
        self.reactor, self.told = reactor, told
        self.parts = {"gcm": SimpleNamespace(name="gcm", pid=7)}
        self.folder: Any = None
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        self.folder = SimpleNamespace(path=Path("/x"))
        match self.outcome:
            case Addresses():
                self.reactor.call_soon(lambda: self.told["on_ready"](self.outcome))
            case StartFailed():
                self.reactor.call_soon(lambda: self.told["on_failed"](self.outcome))
            case Exception():
                raise self.outcome

    def stop(self, stopped: Callable[[], None]) -> None:
        self.calls.append("stop")
        self.folder = None
        if self.stops:
            self.reactor.call_soon(stopped)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> type[PaperLauncher]:
    kind = type("Launched", (PaperLauncher,), {})
    monkeypatch.setattr(background, "Launcher", kind)
    return kind


def cluster(**changes: float) -> BackgroundCluster:
    return BackgroundCluster(LocalSettings(**changes))  # type: ignore[arg-type]


def test_its_addresses_are_told_while_it_runs_and_at_no_other_time(
    launcher: type[PaperLauncher],
) -> None:
    made = cluster()
    for attribute in ("addresses", "folder"):
        with pytest.raises(Unavailable, match="start it first"):
            getattr(made, attribute)
    with made:
        assert (made.addresses, made.folder) == (ADDRESSES, Path("/x"))
        assert list(made.parts) == ["gcm"]
    made.stop()
    assert PaperLauncher.made.calls == ["start", "stop"]
    for attribute in ("addresses", "folder"):
        with pytest.raises(Unavailable, match="start it first"):
            getattr(made, attribute)


@pytest.mark.parametrize(
    "error", [StartFailed("gcm ended", 70), ConfigError("port 5000 is in use")]
)
def test_what_keeps_it_from_starting_is_raised_and_its_thread_has_ended(
    launcher: type[PaperLauncher], error: Exception
) -> None:
    launcher.outcome = error
    made = cluster()
    with pytest.raises(type(error)) as raised:
        made.start()
    assert raised.value is error
    assert not made._thread.is_alive()


def test_a_start_that_neither_works_nor_fails_is_given_up(
    launcher: type[PaperLauncher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_SLACK_SECONDS", 0.2)
    launcher.outcome = None
    made = cluster(start_seconds=0.01)
    with pytest.raises(Unavailable, match="neither started nor failed to"):
        made.start()
    assert PaperLauncher.made.calls == ["start", "stop"]


def test_a_stop_that_does_not_come_to_an_end_is_told(
    launcher: type[PaperLauncher], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster()
    made.start()
    monkeypatch.setattr(background, "_SLACK_SECONDS", 0.05)
    launcher.stops = False
    with pytest.raises(Unavailable, match="does not stop"):
        made.stop()
    made._reactor.call_soon(made._reactor.stop)
    monkeypatch.setattr(background, "_SLACK_SECONDS", 30.0)
    launcher.stops = True
    made.stop()


def test_parts_that_end_unasked_are_remembered(launcher: type[PaperLauncher]) -> None:
    with cluster() as made:
        part: Any = PaperLauncher.made.parts["gcm"]
        PaperLauncher.made.told["on_part_ended"](part)
        assert made.ended == [part]


def test_a_failure_after_the_start_ends_the_thread_and_a_stop_is_harmless(
    launcher: type[PaperLauncher],
) -> None:
    made = cluster()
    made.start()
    failed = StartFailed("gcm has ended 5 times", 70)
    made._reactor.call_soon(lambda: PaperLauncher.made.told["on_failed"](failed))
    made._thread.join(30)
    assert not made._thread.is_alive()
    made.stop()
