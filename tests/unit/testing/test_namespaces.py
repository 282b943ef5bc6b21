"""Hosts of a network on one machine: what the system is asked for, and that it all goes again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from roq.errors import Unavailable
from roq.testing import namespaces
from roq.testing.namespaces import NetworkHost, missing, network, sweep


class System:
    """Notes the commands that it is asked to run."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gives: dict[str, str] = {}
        self.refuses = ""

    def run(self, *argv: str) -> str:
        line = " ".join(argv)
        self.asked.append(line)
        if self.refuses and self.refuses in line:
            raise Unavailable(f"{line}: refused")
        return next((text for part, text in self.gives.items() if part in line), "")


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    made = System()
    monkeypatch.setattr(namespaces, "_run", made.run)
    return made


HOST = NetworkHost("roq-1-1-1", "10.97.0.1", "roq-1-1-s", "port1")


def test_hosts_have_names_addresses_and_plugs_of_their_own_and_all_goes_again(
    system: System,
) -> None:
    with network(2) as (one, two):
        tag = f"roq-{os.getpid()}-"
        assert one.name.startswith(tag)
        assert (one.address, two.address) == ("10.97.0.1", "10.97.0.2")
        assert (one.switch, one.port, two.port) == (two.switch, "port1", "port2")
        made = [line.split()[-1] for line in system.asked if line.startswith("ip netns add")]
        assert made == [one.switch, one.name, two.name]
        assert f"ip -n {two.name} address add 10.97.0.2/24 dev eth0" in system.asked
        assert f"ip -n {two.name} link set lo up" in system.asked
        assert f"ip -n {two.switch} link set port2 master br0 up" in system.asked
        system.asked.clear()
    gone = [line.split()[-1] for line in system.asked if line.startswith("ip netns delete")]
    assert gone == made[::-1]
    with network(1) as (other,):
        assert other.name not in made


def test_a_network_that_the_system_refuses_half_way_leaves_nothing(system: System) -> None:
    system.refuses = "type veth"
    with pytest.raises(Unavailable, match="refused"), network(2):
        pytest.fail("there is one")
    assert len([each for each in system.asked if "netns delete" in each]) == 2


def test_a_command_runs_on_its_host(system: System) -> None:
    system.gives = {"hostname": "h1"}
    assert HOST.run("hostname") == "h1"
    assert system.asked == ["ip netns exec roq-1-1-1 hostname"]
    assert HOST.absolute_prefix[1:] == HOST.prefix[1:]
    assert HOST.absolute_prefix[0].endswith("ip")


def test_a_link_is_limited_at_each_end_and_one_that_is_not_to_be_is_left_alone(
    system: System,
) -> None:
    HOST.limit(inward=10, outward=0.5)
    inward, outward = system.asked
    assert inward.startswith("tc -n roq-1-1-s qdisc replace dev port1 root tbf rate 10000kbit")
    assert outward.startswith("tc -n roq-1-1-1 qdisc replace dev eth0 root tbf rate 500kbit")
    system.asked.clear()
    HOST.limit(inward=0, outward=0)
    assert system.asked == []


def test_a_plug_is_pulled_at_the_switch_so_nobody_is_told(system: System) -> None:
    HOST.cut()
    HOST.join()
    assert system.asked == [
        "ip -n roq-1-1-s link set port1 down", "ip -n roq-1-1-s link set port1 up",
    ]  # fmt: skip


FILTERS: dict[str, tuple[Callable[[], AbstractContextManager[None]], list[str]]] = {
    "loses": (lambda: HOST.loses(12.5), [
        "INPUT -i eth0 -m statistic --mode random --probability 0.1250",
        "OUTPUT -o eth0 -m statistic --mode random --probability 0.1250",
    ]),
    "closed": (lambda: HOST.closed_to(5000), [
        "INPUT -i eth0 -p tcp --sport 5000", "OUTPUT -o eth0 -p tcp --dport 5000",
    ]),
    "mute": (lambda: HOST.mute_at(5000), ["OUTPUT -o eth0 -p tcp --sport 5000"]),
    "deaf": (HOST.deaf, ["INPUT -i eth0"]),
}  # fmt: skip


@pytest.mark.parametrize("way", FILTERS)
def test_what_is_dropped_inside_a_block_passes_again_afterwards(system: System, way: str) -> None:
    make, rules = FILTERS[way]
    begin = "ip netns exec roq-1-1-1 iptables -w 5"
    with make():
        assert system.asked == [f"{begin} -I {rule} -j DROP" for rule in rules]
        system.asked.clear()
    assert system.asked == [f"{begin} -D {rule} -j DROP" for rule in reversed(rules)]


def test_of_rules_that_the_system_takes_half_of_that_half_is_taken_back(system: System) -> None:
    system.refuses = "-I OUTPUT"
    with pytest.raises(Unavailable), HOST.closed_to(5000):
        pytest.fail("it is closed")
    assert "-D INPUT" in system.asked[-1]


def test_what_killed_makers_have_left_is_swept_and_nothing_else(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = 2**22 + 1  # no pid is that high
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    ours = [f"roq-{dead}-1-s", f"roq-{dead}-1-2"]
    others = [f"roq-{os.getpid()}-1-s", "docker", f"roq-{dead}-x", f"my-roq-{dead}-1-s"]
    system.gives = {
        "netns list": "\n".join([*(f"{name} (id: 3)" for name in ours), "", *others]),
        "netns pids": "41\n42\n",
    }
    assert sweep() == ours
    assert killed == [41, 42] * 2
    assert [line for line in system.asked if "delete" in line] == [
        f"ip netns delete {name}" for name in ours
    ]


def test_what_another_one_has_swept_meanwhile_is_none_of_ours(system: System) -> None:
    system.gives = {"netns list": f"roq-{2**22 + 1}-1-s"}
    system.refuses = "netns delete"
    assert sweep() == []


def test_why_there_can_be_no_network_is_said_with_what_to_do(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing() == "network namespaces need root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: None if tool == "tc" else tool)
    assert missing() == "network namespaces need the `tc` command (apt-get install iproute2)"
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: tool)
    assert missing() == ""
    system.refuses = "iptables -w 5 -L"
    assert missing().endswith("refused")


def test_a_command_that_fails_is_told_in_the_words_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file"):
        namespaces._run("ls", str(tmp_path / "nothing"))
    with pytest.raises(Unavailable, match=r"`no-such-tool` failed: .*No such file"):
        namespaces._run("no-such-tool")
    assert namespaces._run("echo", "one") == "one\n"
