"""A daemon as a program: readiness, and which end gives which exit code."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from roq.errors import ConfigError, Unavailable
from roq.runtime import exits
from roq.runtime.program import Program, Readiness, serve


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


LOG = SimpleNamespace(level="info", format="text")


def program(
    load: Callable[[Path | None, Mapping[str, str]], str],
    run: Callable[[str, Readiness | None], int],
) -> Program[str]:
    return Program(
        module="roq.test",
        process="test",
        file="test.toml",
        description="A test.",
        ready="a line",
        load=load,
        run=run,
    )


def crash(*_: object) -> int:
    raise RuntimeError("a bug")


def misconfigured(*_: object) -> str:
    raise ConfigError("test.toml: [port] base is wrong")


def test_the_configuration_of_the_named_file_is_run() -> None:
    seen: list[object] = []
    one = program(lambda path, _: f"read {path}", lambda config, _: seen.append(config) or 0)
    assert one.main(["--config", "some.toml"]) == 0
    assert seen == ["read some.toml"]


def test_whoever_started_it_reads_one_line_when_it_serves() -> None:
    def run(_: str, on_ready: Readiness | None) -> int:
        assert on_ready is not None
        on_ready({"client": "tcp://127.0.0.1:5000"})
        return 0

    read, write = os.pipe()
    assert program(lambda *_: "", run).main(["--ready-fd", str(write)]) == 0
    with os.fdopen(read) as stream:
        assert json.loads(stream.read()) == {"client": "tcp://127.0.0.1:5000"}


def test_a_wrong_configuration_is_named_and_gives_78(capsys: pytest.CaptureFixture[str]) -> None:
    assert program(misconfigured, crash).main([]) == exits.CONFIG
    assert "base is wrong" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ConfigError("port in use"), Unavailable("no free port")])
def test_what_cannot_be_made_gives_78(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> None:
        raise error

    assert serve(LOG, "test", make, crash) == exits.CONFIG
    assert str(error) in capsys.readouterr().err


def test_a_crash_gives_70_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(LOG, "test", lambda: None, crash) == exits.CRASHED
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_what_it_finds_elsewhere_and_cannot_use_gives_78(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve(LOG, "test", lambda: None, misconfigured) == exits.CONFIG  # type: ignore[arg-type]
    assert "base is wrong" in capsys.readouterr().err


def test_the_end_of_a_daemon_is_the_end_of_the_program() -> None:
    assert serve(LOG, "test", lambda: "daemon", len) == len("daemon")
