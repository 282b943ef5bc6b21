"""Durable queues under a manager on paper, and what is seen of them; no test in here."""

from __future__ import annotations

from gcm_script import PaperHost, Script

from roq.protocol.documents import RawDocument
from roq.timing import HOST_SILENT_SECONDS


def durable_script(*, ordered: bool = False) -> Script:
    """Three hosts, and a durable queue with its exchange on the first."""
    made = Script(*(PaperHost(f"h{number}", epoch=number) for number in (1, 2, 3)))
    limits = {"Limits": {"ordered": 1}} if ordered else {}
    assert made.ask(2003, QName="q", Host="h1", Durability="flush", **limits)["RESULT"] == 0
    return made


def lose(script: Script, *names: str) -> None:
    for name in names:
        script.vanish(name)
    script.live(HOST_SILENT_SECONDS)
    for name in names:
        script.expire_node(name)
    script.live(3.0)


def states(script: Script) -> dict[int, tuple[str, str]]:
    return {each.number: (each.host, each.state) for each in script.record("q").exchanges}


def checked(script: Script, name: str) -> str:
    (check,) = [each for each in script.machine.health().checks if each.name == name]
    return check.detail


def described(script: Script) -> RawDocument:
    return script.ask(2104, QName="q")
