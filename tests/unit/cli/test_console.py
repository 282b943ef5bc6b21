"""What `roq console` is told, and what it refuses before it serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from roq.cli.commands import cli


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [(["--bind", "0.0.0.0"], 78, "name a file with a token"),
     (["--token-file", "/nonexistent"], 78, "cannot be read"),
     (["--metric-link", "Grafana"], 78, "NAME=URL"),
     (["--cluster", "a b"], 2, "--cluster")],
)  # fmt: skip
def test_what_cannot_be_is_refused(arguments: list[str], code: int, text: str) -> None:
    done = CliRunner().invoke(cli, ["console", *arguments])
    assert (done.exit_code, text in done.output) == (code, True)


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("uvicorn", "roq.console.server"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(cli, ["console", "--port", "0"])
    assert done.exit_code == 69
    assert "roq-cluster[console]" in done.output


def test_a_token_file_is_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("short\n")
    done = CliRunner().invoke(cli, ["console", "--token-file", str(token)])
    assert (done.exit_code, "16 characters" in done.output) == (78, True)
