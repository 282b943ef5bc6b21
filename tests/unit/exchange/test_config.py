"""The file that a host manager writes for an exchange."""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roq.errors import ConfigError
from roq.exchange.__main__ import main
from roq.exchange.config import load_spec
from roq.model import Limits
from roq.protocol.spec import ExchangeSpec, encode_spec
from roq.runtime import exits

SPEC = ExchangeSpec(
    child="q.x1", queue="q", queue_id=b"q" * 16, epoch=5, bind="127.0.0.1",
    advertise="127.0.0.1", ports=(0, 0), manager="", monitor="", number=1, host="127.0.0.1",
    limits=Limits(),
)  # fmt: skip


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(tmp_path: Path, spec: ExchangeSpec) -> Path:
    path = tmp_path / "x1.json"
    path.write_bytes(encode_spec(spec))
    return path


def test_a_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_spec(written(tmp_path, SPEC)) == SPEC


def test_all_problems_are_named_at_once(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(SPEC, queue_id=b"short", kpi_seconds=0, limits=Limits(topics=0))
    with pytest.raises(ConfigError) as error:
        load_spec(written(tmp_path, spec))
    for word in ("x1.json", "queue_id", "kpi_seconds", "limits.topics"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", -1),
        ("epoch", 1 << 36),
        ("number", -1),
        ("number", 1 << 32),
        ("ports", (0, 99_999)),
    ],
)
def test_a_number_out_of_its_range_is_named(tmp_path: Path, field: str, value: object) -> None:
    spec = msgspec.structs.replace(SPEC, **{field: value})
    with pytest.raises(ConfigError, match=field):
        load_spec(written(tmp_path, spec))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"type": "monitor"}'])
def test_a_file_that_is_no_spec_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x1.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"x1\.json"):
        load_spec(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_spec(tmp_path / "missing")


@pytest.mark.usefixtures("logging_restored")
def test_a_wrong_start_ends_with_its_exit_code(tmp_path: Path) -> None:
    assert main([]) == exits.USAGE
    assert main([str(tmp_path / "missing")]) == exits.CONFIG
    elsewhere = msgspec.structs.replace(SPEC, bind="203.0.113.1")
    assert main([str(written(tmp_path, elsewhere))]) == exits.CONFIG
