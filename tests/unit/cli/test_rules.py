"""What `roq rules` makes of its arguments."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from roq.cli.rules import rules


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--host-cpu", "101"], "0<=x<=100"),
        (["--host-cpu", "-1"], "0<=x<=100"),
        (["--max", "0"], "1<=x<=1024"),
        (["--cooldown", "soon"], "not a valid integer"),
        (["--min", "3", "--max", "2"], "--min 3 is above --max 2"),
        (["--policy", "a b"], "no valid policy name"),
        (["--slow", "wait"], "'hold', 'drop'"),
        (["--hold-seconds", "0"], "1<=x<=3600"),
    ],
)
def test_what_the_cluster_would_refuse_is_refused_before_it_is_asked(
    arguments: list[str], text: str
) -> None:
    done = CliRunner().invoke(rules, ["set", "orders", *arguments])
    assert done.exit_code == 2
    assert text in done.output
