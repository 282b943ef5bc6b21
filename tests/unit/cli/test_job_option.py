"""Which database `roq jobs` works on, and how it shows times."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from roq.cli.commands import cli
from roq.cli.job_option import ago, clock
from roq.jobs.schema import VERSION


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    done = CliRunner().invoke(cli, ["jobs", "list", "--database", str(missing)])
    assert done.exit_code != 0
    assert not missing.exists()
    made = CliRunner().invoke(cli, ["jobs", "migrate", "--database", str(missing)])
    assert made.output == f"schema none → {VERSION}\n"


def test_times_of_any_year_are_shown() -> None:
    assert clock(0) == ""
    assert clock(1_800_000_000_000_000) == "2027-01-15 08:00:00+00:00"
    assert clock(2**62).endswith(" µs")
    assert clock(2**62, "Europe/Warsaw").endswith(" µs")


def test_times_are_shown_in_a_zone_if_it_is_known() -> None:
    assert clock(1_800_000_000_000_000, "Europe/Warsaw") == "2027-01-15 09:00:00+01:00"
    assert clock(1_800_000_000_000_000, "Mars/Phobos") == "2027-01-15 08:00:00+00:00"
    assert (ago(None), ago(2**62)) == ("", "0 s")
