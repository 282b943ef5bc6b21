"""Hosts as processes of this machine; in the place of a host manager something that listens."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roq.errors import ConfigError, InvalidName, NoMoreHosts, ProviderFailed
from roq.provider import local
from roq.provider.local import LocalOptions, LocalProvider
from roq.provider.port import HostRequest, HostState
from roq.provider.process import working_in
from roq.provider.record import HostFolder, HostRecord
from roq.runtime.process import detach

OURS = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
"""Other processes run these tests at the same time."""
FIRST, LAST = f"{OURS}.1", f"{OURS}.9"
LISTENS = """
import re, socket, sys
address = re.search(r'bind = "([0-9.]+)"', open(sys.argv[-1]).read())[1]
socket.create_server((address, 0)).accept()
"""
DEAF = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{LISTENS}"
MUTE = "import threading\nthreading.Event().wait(60)"
ENDS = "print('the registry does not answer')\nraise SystemExit(69)"


class Stage:
    """What is started in the place of host managers, and with which variables."""

    program = LISTENS

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []

    def detach(self, argv: list[str], *, log_path: Path, env: dict[str, str]) -> int:
        assert argv[:4] == [sys.executable, "-P", "-m", "roq.hcm"]
        self.environments.append(env)
        stand_in = [sys.executable, "-I", "-S", "-c", self.program, *argv[2:]]
        return detach(stand_in, log_path=log_path, env=env)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Stage]:
    made = Stage()
    monkeypatch.setattr(local, "detach", made.detach)
    yield made
    for each in working_in(tmp_path):
        each.send(signal.SIGKILL)
        each.wait(10)


def options(folder: Path, **changes: object) -> LocalOptions:
    plain = LocalOptions(data_dir=str(folder), first_address=FIRST, last_address=LAST)
    return msgspec.structs.replace(plain, **changes)


def request(name: str = "one", **changes: object) -> HostRequest:
    plain = HostRequest(cluster="c", name=name, managers=["127.0.0.1:1"], zookeeper="127.0.0.1:2")
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def provider(stage: Stage, tmp_path: Path) -> LocalProvider:
    return LocalProvider(options(tmp_path))


def settings(folder: Path, name: str = "one") -> str:
    return HostFolder(folder, "c", name).configuration.read_text()


def test_a_host_that_listens_is_given_back_and_found_again_by_others(
    provider: LocalProvider, tmp_path: Path
) -> None:
    made = provider.create(request(labels={"queue": "orders"}))
    assert (made.name, made.host, made.handle) == ("one", FIRST, "c/one")
    assert (made.state, made.note) == (HostState.RUNNING, "")
    assert provider.create(request()) == made, "it runs already"
    assert LocalProvider(options(tmp_path)).list("c") == [made]
    assert provider.list("d") == []
    assert HostFolder(tmp_path, "c", "one").read().labels == {"queue": "orders"}
    provider.remove(made.handle)
    assert (provider.list("c"), working_in(tmp_path)) == ([], [])
    provider.remove(made.handle)


def test_each_host_has_an_address_of_its_own_and_none_that_the_cluster_has(
    provider: LocalProvider,
) -> None:
    hosts = [provider.create(request(name, taken=[f"{OURS}.2"])).host for name in ("one", "two")]
    assert hosts == [FIRST, f"{OURS}.3"]


def test_when_no_address_is_left_it_says_so_and_leaves_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    one = LocalProvider(options(tmp_path, last_address=FIRST))
    host = one.create(request())
    with pytest.raises(NoMoreHosts, match="wider range"):
        one.create(request("two"))
    assert one.list("c") == [host]
    assert not (tmp_path / "c" / "two").exists()


def test_a_host_that_ends_at_once_is_removed_and_its_last_words_are_told(
    provider: LocalProvider, stage: Stage, tmp_path: Path
) -> None:
    stage.program = ENDS
    with pytest.raises(ProviderFailed, match=r"one has ended at once.*\n.*does not answer"):
        provider.create(request())
    assert provider.list("c") == []
    assert not (tmp_path / "c").exists()


def test_a_host_that_does_not_listen_in_time_is_killed_and_removed(
    stage: Stage, tmp_path: Path
) -> None:
    stage.program = MUTE
    provider = LocalProvider(options(tmp_path, start_seconds=0.1))
    with pytest.raises(
        ProviderFailed, match=rf"does not listen at {re.escape(FIRST)} within 0.1 s"
    ):
        provider.create(request())
    assert (provider.list("c"), working_in(tmp_path)) == ([], [])


def test_a_program_that_cannot_be_started_leaves_nothing(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(local, "detach", refused)
    with pytest.raises(ProviderFailed, match=r"cannot be started: .*Cannot allocate memory"):
        provider.create(request())
    assert not (tmp_path / "c").exists()


def test_a_host_manager_that_does_not_stop_is_killed(stage: Stage, tmp_path: Path) -> None:
    stage.program = DEAF
    provider = LocalProvider(options(tmp_path, stop_seconds=0.1))
    provider.remove(provider.create(request()).handle)
    assert working_in(tmp_path) == []


def test_a_host_whose_manager_has_ended_says_so_until_it_is_removed_or_made_again(
    provider: LocalProvider, tmp_path: Path
) -> None:
    first = provider.create(request())
    (process,) = working_in(tmp_path)
    process.send(signal.SIGKILL)
    assert process.wait(10)
    (told,) = provider.list("c")
    assert (told.state, told.host) == (HostState.ENDED, FIRST)
    assert told.note.startswith("its host manager has ended")
    assert provider.create(request()).created > first.created


def test_a_host_whose_record_makes_no_sense_can_still_be_removed(
    provider: LocalProvider, tmp_path: Path
) -> None:
    provider.create(request())
    (tmp_path / "c" / "one" / "host.json").write_text("{")
    (told,) = provider.list("c")
    assert (told.host, told.state) == ("", HostState.ENDED)
    assert "cannot be read" in told.note
    provider.remove(told.handle)
    assert (provider.list("c"), working_in(tmp_path)) == ([], [])


def test_a_host_whose_maker_was_interrupted_is_found_by_what_works_there(
    provider: LocalProvider, tmp_path: Path
) -> None:
    made = provider.create(request())
    HostFolder(tmp_path, "c", "one").write(HostRecord(address=made.host, created=made.created))
    assert provider.list("c") == [made]


def test_where_it_listens_nobody_may_change_and_the_rest_is_as_it_was_asked_for(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROQ_HCM_NETWORK_BIND", f"{OURS}.99")
    monkeypatch.setenv("ROQ_TEST", "kept")
    wanted = {"network": {"bind": f"{OURS}.98"}, "exchange": {"max_perhost": 3}}
    provider = LocalProvider(options(tmp_path, hcm=wanted))
    provider.create(request(settings={"exchange": {"max_perhost": 5}}))
    text = settings(tmp_path)
    assert f'bind = "{FIRST}"' in text
    assert f'dir = "{tmp_path}/c/one/data"' in text
    assert "max_perhost = 5" in text
    (environment,) = stage.environments
    assert [name for name in environment if name.startswith("ROQ_HCM_")] == []
    assert environment["ROQ_TEST"] == "kept"


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"data_dir: .* cannot be used: Not a directory"):
        LocalProvider(options(tmp_path / "file" / "hosts"))


def test_a_handle_that_is_none_of_ours_removes_nothing(
    provider: LocalProvider, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    for handle in ("", "other", "../c/one", "c/../..", "c/nobody"):
        provider.remove(handle)
    assert (tmp_path / "other").exists()
    with pytest.raises(InvalidName):
        provider.list("../c")


def test_whoever_holds_the_lock_for_too_long_is_named(
    provider: LocalProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LOCK_SECONDS", 0.1)
    locked = f"{tmp_path}/lock has been locked for 0.1 s"
    with provider._lock(), pytest.raises(ProviderFailed, match=locked):
        provider.create(request())
    provider.create(request())


def test_two_that_are_asked_at_once_give_different_addresses(
    provider: LocalProvider, tmp_path: Path
) -> None:
    made: list[str] = []
    other = LocalProvider(options(tmp_path))
    threads = [
        threading.Thread(target=lambda p=each, n=name: made.append(p.create(request(n)).host))
        for each, name in ((provider, "one"), (other, "two"))
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(made) == [FIRST, f"{OURS}.2"]


@pytest.mark.parametrize(
    "wrong", [{"data_dir": ""}, {"first_address": "10.0.0.1"}, {"last_address": f"{OURS}.0"},
              {"start_seconds": 0}, {"stop_seconds": 601}]
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    plain = {"first_address": FIRST, "last_address": LAST}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**plain, **wrong}, LocalOptions)
