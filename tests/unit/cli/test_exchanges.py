"""What `roq exchange forget` says before it gives an exchange up."""

from __future__ import annotations

import json
from unittest.mock import MagicMock

import msgspec
import pytest
from click.testing import CliRunner

import roq
from roq.cli.exchanges import exchange
from roq.client.admin.views import Listing
from roq.protocol.public_answers import ExchangeSummary


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """One whose x1 is away and whose x2 runs."""
    rows = [
        {
            "Name": f"x{number}", "Number": number, "Host": f"h{number}", "Data": "", "Live": "",
            "State": state, "Epoch": 1, "Pid": 0, "Reason": reason,
        }
        for number, state, reason in (
            (1, "away", "is away: its log is on host h1, which is lost; it is back when that is"),
            (2, "running", ""),
            (3, "failed", ""),
        )
    ]  # fmt: skip
    connected = MagicMock()
    connected.__enter__.return_value = connected
    connected.exchanges.return_value = Listing(msgspec.convert(rows, list[ExchangeSummary]), None)
    monkeypatch.setattr(roq, "connect", lambda *_, **__: connected)
    return connected


def test_what_is_lost_is_said_first_and_done_when_it_is_said_again(cluster: MagicMock) -> None:
    no = CliRunner().invoke(exchange, ["forget", "orders", "x1"], input="n\n")
    assert no.exit_code == 1
    assert "its log is on host h1, which is lost" in no.stderr
    assert "acknowledged and that a subscriber or a group has not read yet" in no.stderr
    assert "If host h1 has the log, or comes back with it, it stays there" in no.stderr
    assert "`roq health` names its folder, which is yours to remove" in no.stderr
    nobody = CliRunner().invoke(exchange, ["forget", "orders", "x1"])
    assert nobody.exit_code == 1
    assert "Say --yes if that is meant." in nobody.stderr
    cluster.forget_exchange.assert_not_called()
    assert CliRunner().invoke(exchange, ["forget", "orders", "1"], input="y\n").exit_code == 0
    assert cluster.forget_exchange.call_args.args == ("orders", "1")


def test_what_hosts_have_still_to_do_is_said(cluster: MagicMock) -> None:
    told = "host h1 keeps what is in its log of x1 of queue orders when it is back"
    cluster.forget_exchange.return_value = cluster.remove_exchange.return_value = told
    for command in (["forget", "orders", "x1", "--yes"], ["remove", "orders", "x1"]):
        assert told in CliRunner().invoke(exchange, command).stderr
        answer = json.loads(CliRunner().invoke(exchange, [*command, "--json"]).stdout)
        assert answer["warning"] == told
    cluster.remove_exchange.return_value = ""
    answer = json.loads(CliRunner().invoke(exchange, ["remove", "orders", "x1", "--json"]).stdout)
    assert answer == {"ok": True, "queue": "orders", "exchange": "x1"}


def test_of_one_that_has_failed_it_is_said_as_well(cluster: MagicMock) -> None:
    no = CliRunner().invoke(exchange, ["forget", "orders", "x3"], input="n\n")
    what = "x3 of queue orders is failed: its log is on host h3. With its log these are lost"
    assert what in no.stderr
    assert "comes back" not in no.stderr
    cluster.forget_exchange.assert_not_called()


def test_one_that_is_not_away_is_left_to_the_cluster_to_refuse(cluster: MagicMock) -> None:
    cluster.forget_exchange.side_effect = roq.RequestError("x2 is not away")
    refused = CliRunner().invoke(exchange, ["forget", "orders", "x2", "--yes"])
    assert refused.exit_code != 0
    assert "lost" not in refused.stderr
