"""Why Kafka cannot run here, in the order in which one would mend it."""

from __future__ import annotations

import pytest

from roq.benchmarks.contenders import kafka


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kafka.JARS, raising=False)
    monkeypatch.setattr(kafka.shutil, "which", lambda _: None)
    assert kafka.missing() == "Java is not installed"
    monkeypatch.setattr(kafka.shutil, "which", lambda _: "/usr/bin/java")
    assert kafka.JARS in str(kafka.missing())
    monkeypatch.setenv(kafka.JARS, "/jars")
    monkeypatch.setattr(kafka.importlib.util, "find_spec", lambda _: None)
    assert kafka.missing() == "confluent-kafka is not installed"
    monkeypatch.setattr(kafka.importlib.util, "find_spec", lambda _: object())
    assert kafka.missing() is None
