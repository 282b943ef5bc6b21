"""The parts of a local cluster start side by side, are started again, and stop in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roq.errors import ConfigError
from roq.local import launcher as launchers
from roq.local.launcher import DEATHS, STOP_SECONDS, Launcher, PartState, StartFailed
from roq.local.plan import Addresses
from roq.local.settings import LocalSettings
from roq.runtime.interfaces import Timer


class PaperPart:
    """A process of paper: ready, asked, killed and ended when it is told to."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        argv: list[str],
        *,
        log_path: Path,
        on_ready: Callable[[PaperPart], None],
        on_end: Callable[[PaperPart], None],
        ending: signal.Signals,
    ) -> None:
        if stage.refuses == name:
            raise OSError(12, "Cannot allocate memory")
        self.name, self.argv, self.log_path, self.ending = name, argv, log_path, ending
        self.ready: dict[str, object] | None = None
        self.code: int | None = None
        self.words = ""
        self._stage, self._on_ready, self._on_end = stage, on_ready, on_end
        stage.deeds.append(f"start {name}")

    @property
    def running(self) -> bool:
        return self.code is None

    def serves(self) -> None:
        self.ready = {}
        self._on_ready(self)

    def ends(self, code: int = 0) -> None:
        self.code = code
        self._on_end(self)

    def end(self) -> None:
        self._stage.deeds.append(f"end {self.name}")

    def kill(self) -> None:
        self._stage.deeds.append(f"kill {self.name}")

    def last_words(self) -> str:
        return self.words

    def end_text(self) -> str:
        return f"ended with exit code {self.code}"


class Stage:
    """A loop of paper, and what was told to the owner of a launcher."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.time = 100.0
        self.refuses = ""
        self.deeds: list[str] = []
        self.ready: list[Addresses] = []
        self.failed: list[StartFailed] = []
        self.gone: list[str] = []
        self.notes: list[str] = []
        self.stopped = 0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []
        self.launcher = Launcher(
            self, LocalSettings(data_dir=folder, hosts=2, **settings),  # type: ignore[arg-type]
            on_ready=self.ready.append, on_failed=self.failed.append,
            on_part_ended=lambda part: self.gone.append(part.name), on_note=self.notes.append,
        )  # fmt: skip

    def now(self) -> float:
        return self.time

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.time + seconds, call))
        return self.timers[-1]

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def pass_time(self, seconds: float) -> None:
        self.time += seconds
        for timer in [each for each in self.timers if each.when <= self.time]:
            self.timers.remove(timer)
            if timer.call is not None:
                timer.call()
        self.turn()

    def part(self, name: str) -> PaperPart:
        found: Any = self.launcher.parts[name]
        return found

    def start(self) -> Stage:
        self.launcher.start()
        for name in self.launcher.parts:
            self.part(name).serves()
        self.deeds.clear()
        return self

    def stop(self) -> None:
        def told() -> None:
            self.stopped += 1

        self.launcher.stop(told)
        self.turn()

    def ended(self, *names: str) -> None:
        for name in names:
            self.part(name).ends()
        self.turn()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(launchers, "Part", PaperPart)
    made = Stage(tmp_path)
    yield made
    if made.launcher.folder is not None:
        made.launcher.folder.close()


ONE, TWO = "host 127.0.0.1", "host 127.0.0.2"


def test_all_parts_are_started_at_once_and_it_serves_when_the_last_one_does(stage: Stage) -> None:
    stage.launcher.start()
    assert sorted(stage.deeds) == ["start gcm", f"start {ONE}", f"start {TWO}"]
    assert stage.launcher.state is PartState.STARTING
    for name in (TWO, "gcm"):
        stage.part(name).serves()
    assert stage.ready == []
    stage.part(ONE).serves()
    (told,) = stage.ready
    assert told.hosts == ["127.0.0.1", "127.0.0.2"]
    assert stage.launcher.state is PartState.READY
    stage.pass_time(1_000.0)
    assert stage.failed == [], "no time is up any more"


def test_hosts_stop_before_the_manager_that_they_say_goodbye_to(stage: Stage) -> None:
    stage.start().stop()
    assert stage.deeds == [f"end {ONE}", f"end {TWO}"]
    assert stage.part(ONE).ending is signal.SIGINT
    assert stage.part("gcm").ending is signal.SIGTERM
    stage.ended(ONE)
    assert len(stage.deeds) == 2
    stage.ended(TWO)
    assert stage.deeds[2:] == ["end gcm"]
    assert stage.stopped == 0
    stage.stop()
    stage.ended("gcm")
    assert (stage.stopped, stage.launcher.state) == (2, PartState.STOPPED)
    stage.stop()
    assert (stage.stopped, stage.failed) == (3, [])


def test_what_does_not_stop_in_time_is_killed_and_told(stage: Stage) -> None:
    stage.start().stop()
    stage.ended(ONE)
    stage.pass_time(STOP_SECONDS)
    assert stage.deeds[2:] == [f"kill {TWO}"]
    assert f"{TWO} has not stopped within {STOP_SECONDS:g} s and is killed" in stage.notes
    stage.ended(TWO)
    stage.pass_time(STOP_SECONDS)
    assert stage.deeds[3:] == ["end gcm", "kill gcm"]


@pytest.mark.parametrize(("code", "told"), [(69, 69), (78, 78), (70, 70), (1, 70), (-9, 70)])
def test_a_part_that_ends_while_all_start_stops_the_rest_and_says_why(
    stage: Stage, code: int, told: int
) -> None:
    stage.launcher.start()
    stage.part(ONE).words = "the port is in use"
    stage.part(ONE).ends(code)
    stage.turn()
    assert stage.failed == []
    stage.ended(TWO, "gcm")
    (failed,) = stage.failed
    assert failed.exit_code == told
    assert f"{ONE} ended with exit code {code} while the cluster was starting" in str(failed)
    assert "the end of its log:\nthe port is in use" in str(failed)
    assert stage.ready == []


def test_a_start_that_takes_too_long_names_who_is_missing(stage: Stage) -> None:
    stage.launcher.start()
    stage.part("gcm").serves()
    stage.part(TWO).words = "waiting"
    stage.pass_time(LocalSettings().start_seconds)
    stage.ended(ONE, TWO, "gcm")
    (failed,) = stage.failed
    assert f"{ONE}, {TWO} did not get ready within" in str(failed)
    assert "waiting" in str(failed)
    assert failed.exit_code == 69


def test_a_process_that_cannot_be_started_fails_the_start(stage: Stage) -> None:
    stage.refuses = TWO
    stage.launcher.start()
    stage.turn()
    stage.ended(*[each for each in stage.launcher.parts if each != "gcm"])
    stage.ended("gcm")
    (failed,) = stage.failed
    assert (failed.exit_code, "Cannot allocate memory" in str(failed)) == (70, True)


def test_a_folder_with_another_kind_of_registry_is_refused_and_nothing_is_left(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "zookeeper").mkdir()
    with pytest.raises(ConfigError):
        stage.launcher.start()
    assert stage.deeds == []


def test_a_part_that_ends_unasked_is_told_and_started_again_with_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "Part", PaperPart)
    stage = Stage(tmp_path).start()
    before = stage.part(ONE)
    before.ends(-9)
    stage.pass_time(0.0)
    assert stage.gone == [ONE]
    assert stage.deeds == [f"start {ONE}"]
    assert stage.part(ONE) is not before
    assert stage.part(ONE).argv == before.argv
    assert "it is started again now" in stage.notes[0]
    stage.part(ONE).serves()
    assert stage.notes[1] == f"{ONE} serves again"
    assert len(stage.ready) == 1
    stage.part(ONE).ends(-9)
    stage.pass_time(0.0)
    assert "it is started again in 0.5 s" in stage.notes[2]
    assert stage.deeds == [f"start {ONE}"]
    stage.pass_time(DEATHS.first_seconds)
    assert stage.deeds == [f"start {ONE}"] * 2
    stage.launcher.kill()


def test_a_part_that_ends_again_and_again_ends_the_cluster_and_its_folder_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "Part", PaperPart)
    stage = Stage(tmp_path).start()
    for _ in range(DEATHS.most):
        stage.part(ONE).ends(70)
        stage.pass_time(DEATHS.longest_seconds)
    stage.ended(TWO)
    stage.ended("gcm")
    (failed,) = stage.failed
    assert f"has ended {DEATHS.most} times within" in str(failed)
    assert str(stage.part(ONE).log_path) in str(failed)


def test_what_ends_while_all_stops_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "Part", PaperPart)
    stage = Stage(tmp_path).start()
    stage.part(ONE).ends(70)
    stage.stop()
    stage.pass_time(DEATHS.longest_seconds)
    assert f"start {ONE}" not in stage.deeds
    stage.ended(TWO)
    stage.ended("gcm")
    assert stage.stopped == 1


def test_without_restart_a_part_that_ends_is_told_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "Part", PaperPart)
    stage = Stage(tmp_path, restart=False).start()
    stage.part(ONE).ends(70)
    stage.pass_time(60.0)
    assert (stage.gone, stage.deeds, stage.notes) == ([ONE], [], [])
    stage.launcher.kill()


def test_an_end_at_once_says_goodbye_to_nobody(stage: Stage) -> None:
    stage.start()
    stage.part(TWO).code = 0
    stage.launcher.kill()
    stage.launcher.kill()
    assert stage.deeds == ["kill gcm", f"kill {ONE}"] * 2


def test_nothing_that_was_never_started_is_stopped(stage: Stage) -> None:
    stage.stop()
    assert (stage.stopped, stage.deeds, stage.launcher.folder) == (1, [], None)
