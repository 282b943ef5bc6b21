"""On which Python Oban can take part, and how its program finds what it runs."""

from __future__ import annotations

import asyncio
import sys

import pytest

from roq.benchmarks.contenders import oban_jobs


def test_it_needs_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oban_jobs, "worker_missing", lambda name: f"no {name}")
    monkeypatch.setattr(oban_jobs, "SINCE", (sys.version_info[0], sys.version_info[1] + 1))
    assert "oban needs Python" in str(oban_jobs.missing())
    monkeypatch.setattr(oban_jobs, "SINCE", sys.version_info[:2])
    assert oban_jobs.missing() == "no oban"


def test_its_worker_is_found_by_name() -> None:
    module, _, name = oban_jobs.NAME.rpartition(".")
    found = getattr(sys.modules[module], name)()
    assert asyncio.run(found.process(object())) is None
