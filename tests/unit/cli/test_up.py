"""`roq up`: options reach the launcher; it is told when all serve, and why it ends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from roq.cli import up as module
from roq.cli.up import up
from roq.errors import ConfigError, RoQError, Unavailable
from roq.local.launcher import StartFailed
from roq.local.plan import Addresses
from roq.local.settings import LocalSettings
from roq.runtime.reactor import Reactor


def addresses(port: int) -> Addresses:
    return Addresses(
        client=f"127.0.0.1:{port}", management="", broadcast="", registry="file:/x",
        hosts=["127.0.0.1"], managers=[],
    )  # fmt: skip


class PaperFolder:
    path = Path("/the/folder")


class PaperLauncher:
    """Serves at once on `port`, and is stopped by the command's own signal handler, or fails."""

    port = 5000
    failure: ClassVar[RoQError | None] = None
    notes: tuple[str, ...] = ()
    folder = PaperFolder()
    made: ClassVar[list[PaperLauncher]] = []

    def __init__(
        self, reactor: Reactor, settings: LocalSettings, *, on_ready: Callable[[Addresses], None],
        on_failed: Callable[[StartFailed], None], on_note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.settings, self.calls = settings, list[str]()
        self._reactor, self._ready, self._failed, self._note = reactor, on_ready, on_failed, on_note
        self.made.append(self)

    def start(self) -> None:
        if isinstance(self.failure, StartFailed):
            self._reactor.call_soon(lambda: self._failed(self.failure))  # type: ignore[arg-type]
        elif self.failure is not None:
            raise self.failure
        else:
            self._reactor.call_soon(lambda: self._ready(addresses(self.port)))
            self._reactor.call_soon(lambda: [self._note(each) for each in self.notes])
            self._reactor.call_soon(Stop.asked)

    def stop(self, stopped: Callable[[], None]) -> None:
        self.calls.append("stop")
        stopped()

    def kill(self) -> None:
        self.calls.append("kill")


class Stop:
    """What a signal does."""

    asked: Callable[[], None]


@pytest.fixture(autouse=True)
def launcher(monkeypatch: pytest.MonkeyPatch) -> type[PaperLauncher]:
    class Fresh(PaperLauncher):
        made: ClassVar[list[PaperLauncher]] = []

    def on_stop(_reactor: Reactor, callback: Callable[[], None]) -> None:
        monkeypatch.setattr(Stop, "asked", staticmethod(callback), raising=False)

    monkeypatch.setattr(module, "Launcher", Fresh)
    monkeypatch.setattr(module, "on_stop", on_stop)
    return Fresh


def roq(*arguments: str) -> Result:
    return CliRunner().invoke(up, [*arguments])


def test_a_line_says_where_it_serves_and_a_signal_stops_it_in_order(
    launcher: type[PaperLauncher],
) -> None:
    done = roq()
    assert done.exit_code == 0
    word, document = done.stdout.split(maxsplit=1)
    assert (word, json.loads(document)["client"]) == ("ready", "127.0.0.1:5000")
    assert done.stderr == "", "without a terminal there is nothing to say"
    assert [each.calls for each in launcher.made] == [["stop", "kill"]]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], {"hosts": 1, "port_base": 5000, "managers": 1, "registry": "", "zookeepers": 1,
              "slots": 0, "provider": "", "hosts_max": 4, "metrics": False, "data_dir": None,
              "log_level": "info", "log_format": "text", "restart": True}),
        (["--hosts", "3", "--data-dir", "d", "--port-base", "6000", "--managers", "2",
          "--registry", "zookeeper", "--zookeepers", "3", "--slots", "1", "--provider", "local",
          "--hosts-max", "7", "--metrics", "--log-level", "debug", "--log-format", "json"],
         {"hosts": 3, "data_dir": Path("d"), "port_base": 6000, "managers": 2,
          "registry": "zookeeper", "zookeepers": 3, "slots": 1, "provider": "local",
          "hosts_max": 7, "metrics": True, "log_level": "debug", "log_format": "json"}),
        (["--zookeeper", "zk:2181"], {"zookeeper": "zk:2181"}),
    ],
)  # fmt: skip
def test_options_reach_the_launcher(
    arguments: list[str], wanted: dict[str, Any], launcher: type[PaperLauncher]
) -> None:
    assert roq(*arguments).exit_code == 0
    (made,) = launcher.made
    assert {name: getattr(made.settings, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StartFailed("gcm crashed", 70), 70),
        (StartFailed("no ZooKeeper", 69), 69),
        (ConfigError("port 5000 is in use"), 78),
        (Unavailable("no Java"), 69),
    ],
)
def test_why_it_does_not_start_is_a_sentence_and_an_exit_code(
    failure: RoQError, code: int, launcher: type[PaperLauncher]
) -> None:
    launcher.failure = failure
    done = roq()
    assert done.exit_code == code
    assert done.stderr.startswith(f"Error: {failure}\n")
    assert done.stdout == ""
    assert launcher.made[0].calls == ["kill"], "nothing is left running"


def test_settings_that_cannot_be_are_a_wrong_configuration() -> None:
    done = roq("--zookeepers", "2")
    assert done.exit_code == 78
    assert "1, 3 or 5" in done.stderr


def test_what_has_happened_to_a_part_is_said_without_a_terminal_too(
    launcher: type[PaperLauncher],
) -> None:
    launcher.notes = ("gcm was killed; it is started again",)
    assert roq().stderr == "gcm was killed; it is started again\n"


@pytest.mark.parametrize(
    ("port", "step"),
    [
        (5000, "roq queue create orders\n"),
        (6000, "roq queue create orders --cluster 127.0.0.1:6000\n"),
    ],
)
def test_at_a_terminal_the_next_step_is_told_with_the_address_that_it_needs(
    port: int, step: str, launcher: type[PaperLauncher], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "note", said.append)
    streams = SimpleNamespace(stdout=io.StringIO(), stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(module, "sys", streams)
    launcher.port = port
    assert roq("--hosts", "2").exit_code == 0
    assert said[0] == "Starting a cluster of 2 hosts …"
    assert "Logs are in /the/folder/log" in said[1]
    assert f"{said[2]}\n".endswith(step)
    assert said[3:] == ["Stopping …"]
