"""What a host manager writes down for its children, and says through a pipe."""

from __future__ import annotations

import msgspec
import pytest

from roq.errors import InvalidRequest
from roq.model import Limits
from roq.protocol.spec import (
    COMMAND_BYTES_MAX,
    End,
    ExchangeSpec,
    MonitorSpec,
    Serve,
    Spec,
    decode_command,
    encode_command,
    encode_spec,
)

COMMON = {
    "queue": "orders",
    "queue_id": b"id",
    "epoch": 65_537,
    "bind": "127.0.0.1",
    "advertise": "127.0.0.1",
    "ports": (7000, 7100),
    "manager": "tcp://127.0.0.1:5010",
    "limits": Limits(),
}


@pytest.mark.parametrize("command", [Serve(child="orders.monitor"), End(child="o.x1", epoch=9)])
def test_a_command_is_one_line(command: Serve | End) -> None:
    line = encode_command(command)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert len(line) <= COMMAND_BYTES_MAX
    assert decode_command(line) == command


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[", b'{"type":"serve"}', b'{"type":"end","child":"x","epoch":-1}', b"\xff"],
)
def test_any_other_line_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no command of a host manager"):
        decode_command(line)


@pytest.mark.parametrize(
    "spec",
    [
        MonitorSpec(child="orders.monitor", restarted=True, **COMMON),  # type: ignore[arg-type]
        ExchangeSpec(child="orders.x1", number=1, host="h1", monitor="tcp://a:1", **COMMON),  # type: ignore[arg-type]
    ],
)
def test_a_spec_says_which_kind_of_child_it_is_for(spec: MonitorSpec | ExchangeSpec) -> None:
    assert msgspec.json.decode(encode_spec(spec), type=Spec) == spec
