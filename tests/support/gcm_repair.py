"""What tests of lost and draining hosts look at, in the cluster of a script; no test in here."""

from __future__ import annotations

from gcm_script import Script

from roq.protocol.documents import RawDocument
from roq.timing import HOST_SILENT_SECONDS


def where(script: Script, queue: str = "q") -> dict[int, str]:
    """Number → host of what really runs."""
    return {
        number: host.name
        for host in script.hosts.values()
        for (name, number), child in host.children.items()
        if name == queue and child.state == "running"
    }


def lose(script: Script, *names: str) -> None:
    for name in names:
        script.vanish(name)
    script.live(HOST_SILENT_SECONDS)
    for name in names:
        script.expire_node(name)


def reasons(script: Script, queue: str = "q") -> list[str]:
    return script.ask(2104, QName=queue)["Reasons"]


def row(script: Script, host: str) -> RawDocument:
    return next(each for each in script.ask(2102)["Hosts"] if each["Host"] == host)


def places(script: Script, queue: str = "q") -> set[str]:
    return set(script.record(queue).hosts)
