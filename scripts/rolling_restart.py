#!/usr/bin/env python3
"""Restart the host managers and configuration managers of a cluster, one after the other.

A host is drained first, so nothing is lost and no publisher waits; after its restart it takes what
is placed again, unless an operator had cordoned it before. One with logs of durable queues is not
drained, as that would remove them: its command has to end the old process by SIGTERM, so that all
else goes elsewhere and the logs stay; publishers whose queue has no other exchange wait until it is
back. Of the configuration managers the one that leads comes last. Each step waits until the cluster
is well again; the first that takes too long ends the program with exit code 1, and what is to be
done is said. It may be run again.

A command is run by the shell, with {host} and {port} of the part that it restarts. It must not
return before the old process has ended:

    scripts/rolling_restart.py --cluster 10.0.0.1:5000 \\
        --restart-host 'ssh {host} systemctl restart roq-host' \\
        --restart-manager 'ssh {host} systemctl restart roq-gcm'
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from shlex import quote
from threading import Event
from time import monotonic
from typing import Final, NoReturn

import click

import roq
from roq.client.cluster import Cluster
from roq.errors import RequestError, Unavailable
from roq.model import VOLATILE
from roq.protocol.public_answers import HostSummary

LOOK_SECONDS: Final = 0.5
CALM_SECONDS: Final = 3.0
"""All must be well for so long before the next part is touched."""


class Rolling:
    """One rolling restart.

    Args:
        cluster: of which.
        within: seconds that each step may take.
    """

    def __init__(self, cluster: Cluster, within: float) -> None:
        self._cluster = cluster
        self._within = within

    def hosts(self, command: str) -> None:
        """Restart all host managers."""
        for host in [each.host for each in self._cluster.hosts()]:
            self._restart_host(host, command)

    def managers(self, command: str) -> None:
        """Restart all configuration managers, the leader last."""
        addresses = [each.removeprefix("tcp://") for each in self._cluster.addresses]
        for address in sorted(addresses, key=_leads):
            name = f"manager {address}"
            host, _, port = address.rpartition(":")
            with self._step(f"{name} is restarted"):
                _run(command, host, port)
                self._wait(partial(_silent, address), f"{name} answers")
                self.well()

    def _restart_host(self, host: str, command: str) -> None:
        before = self._host(host)
        if before is None or before.state != "live":
            _give_up(f"host {host} is not live: mend or remove it first (`roq host list`)")
        if self._has_logs(host):
            click.echo(f"host {host} has logs of durable queues: it is not drained, and they stay")
        else:
            with self._step(f"host {host} is drained"):
                self._cluster.drain_host(host)
                self._wait(lambda: self._left(host), f"host {host} is empty")
        with self._step(f"host {host} is restarted"):
            _run(command, host, before.control.rpartition(":")[2])
            self._wait(lambda: self._not_back(before), f"host {host} is back")
            match before.schedule:
                case "active":
                    self._cluster.uncordon_host(host)
                case "cordoned":
                    self._cluster.cordon_host(host)
                case _:
                    click.echo(
                        f"host {host} was being drained before, and stays so: "
                        f"`roq host uncordon {host}` ends that"
                    )
            self.well()

    def _host(self, host: str) -> HostSummary | None:
        return next((each for each in self._cluster.hosts() if each.host == host), None)

    def _has_logs(self, host: str) -> bool:
        return any(
            each.host == host
            for queue in self._cluster.queues()
            if queue.durability not in {VOLATILE, ""}
            for each in self._cluster.exchanges(queue.name)
        )

    def _left(self, host: str) -> str:
        row = self._host(host)
        if row is None or row.state != "live":
            return f"host {host} does not report"
        return row.stuck or ", ".join(row.left)

    def _not_back(self, before: HostSummary) -> str:
        row = self._host(before.host)
        back = row is not None and row.state == "live" and row.epoch > before.epoch
        return "" if back else "its manager has not reported since it was restarted"

    def well(self) -> None:
        """Wait until all hosts are live and no queue lacks anything, and stay so for a while."""
        since = monotonic()

        def unwell() -> str:
            nonlocal since
            hosts = [each.host for each in self._cluster.hosts() if each.state != "live"]
            queues = [f"{each.name}: {'; '.join(each.reasons)}"
                      for each in self._cluster.queues() if each.reasons]  # fmt: skip
            if hosts or queues:
                since = monotonic()
                return ", ".join([f"host {each} is not live" for each in hosts] + queues)
            return "all was well only a moment ago" * (monotonic() - since < CALM_SECONDS)

        self._wait(unwell, "all hosts and queues are well")

    def _wait(self, missing: Callable[[], str], aim: str) -> None:
        pause = Event()
        deadline = monotonic() + self._within
        while True:
            try:
                text = missing()
            except (Unavailable, RequestError) as error:
                text = str(error)  # another manager begins to lead
            if not text:
                return
            if monotonic() >= deadline:
                _give_up(f"not so within {self._within:g} s: {aim}; {text}")
            pause.wait(LOOK_SECONDS)

    @contextmanager
    def _step(self, text: str) -> Iterator[None]:
        begun = monotonic()
        yield
        click.echo(f"{text} ({monotonic() - begun:.1f} s)")


def _leads(address: str) -> bool:
    try:
        with roq.connect(address) as cluster:
            return cluster.info.leader
    except Unavailable:
        _give_up(f"manager {address} does not answer: mend it first")


def _silent(address: str) -> str:
    try:
        with roq.connect(address, timeout=2.0):
            return ""
    except Unavailable as error:
        return str(error)


def _run(command: str, host: str, port: str) -> None:
    text = command.replace("{host}", quote(host)).replace("{port}", quote(port))
    code = subprocess.run(text, shell=True, check=False).returncode  # noqa: S602 - it is the operator's
    if code:
        _give_up(f"`{text}` has ended with exit code {code}")


def _give_up(text: str) -> NoReturn:
    raise click.ClickException(
        f"{text}. Nothing further is restarted; `roq health` and `roq host list` show how it is"
    )


@click.command(help=__doc__.partition("\n")[0])
@click.option("--cluster", "address", required=True, envvar="ROQ_CLUSTER", metavar="HOST:PORT")
@click.option("--restart-host", default="", metavar="COMMAND", help="Empty: no host manager.")
@click.option("--restart-manager", default="", metavar="COMMAND", help="Empty: no manager.")
@click.option("--within", default=600.0, show_default=True, help="Seconds for each step.")
def main(address: str, restart_host: str, restart_manager: str, within: float) -> None:
    """Restart what there are commands for: managers first, so hosts meet the new ones."""
    if not (restart_host or restart_manager):
        raise click.UsageError("give --restart-host, --restart-manager or both")
    try:
        with roq.connect(address) as cluster:
            rolling = Rolling(cluster, within)
            rolling.well()  # else nothing is restarted
            if restart_manager:
                rolling.managers(restart_manager)
            if restart_host:
                rolling.hosts(restart_host)
    except roq.RoQError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
