"""`roq up`: a whole cluster on this machine, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from roq.cli.failures import Failed, daemon_failed, text_of
from roq.cli.output import note
from roq.client.admin.wording import many
from roq.errors import RoQError
from roq.local.launcher import Launcher, StartFailed
from roq.local.plan import Addresses
from roq.local.settings import FILE, HOSTS_MAX, MANAGERS_MAX, ZOOKEEPER, LocalSettings
from roq.runtime.reactor import Reactor
from roq.runtime.signals import on_stop
from roq.runtime.structured_logs import FORMATS, LEVELS

_PORT_BASE_MAX: Final = 65_530


@click.command()
@click.option(
    "--hosts",
    type=click.IntRange(1, HOSTS_MAX),
    default=1,
    show_default=True,
    help="Host managers, on 127.0.0.1, 127.0.0.2, …",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep configuration, logs and queues here; if not given, a temporary folder that is "
    "removed at the end.",
)
@click.option(
    "--port-base",
    type=click.IntRange(0, _PORT_BASE_MAX),
    default=5000,
    show_default=True,
    help="Client port; management is 3 and the broadcast 5 above it. 0: any free ports.",
)
@click.option(
    "--managers",
    type=click.IntRange(1, MANAGERS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Configuration managers; one leads, another one takes over. Each has its ports 10 above "
    "those of the one before.",
)
@click.option(
    "--registry",
    type=click.Choice([FILE, ZOOKEEPER]),
    help="What keeps the definitions of queues: a file in the data directory, or an embedded "
    "ZooKeeper, which needs Java. If not given: a file unless something is said of ZooKeeper.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT",
    default="",
    help="Use this ZooKeeper (several with commas) instead of an embedded one.",
)
@click.option(
    "--zookeepers",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Embedded ZooKeeper servers: 1, or an ensemble of 3 or 5, of which one or two may fail.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Exchanges that each host may have; 0: no limit.",
)
@click.option(
    "--provider",
    metavar="NAME",
    default="",
    help="Who makes another host when a queue wants to grow and all hosts are full; `local`: one "
    "more host manager on this machine.",
)
@click.option(
    "--hosts-max",
    type=click.IntRange(1, HOSTS_MAX),
    default=4,
    show_default=True,
    metavar="N",
    help="Hosts that the provider may make.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Serve /metrics, /healthz and /readyz: each manager 8 above its client port, each host 9 "
    "above the first one, at its own address.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="How much the daemons log.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Logs for people or JSON lines.",
)
def up(
    hosts: int,
    data_dir: Path | None,
    port_base: int,
    managers: int,
    registry: str | None,
    zookeeper: str,
    zookeepers: int,
    slots: int,
    provider: str,
    hosts_max: int,
    metrics: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run a whole cluster on this machine until Ctrl-C or SIGTERM.

    Starts a configuration manager and the host managers, each as a process of its own. When all of
    them serve, one line `ready {…}` with their addresses is printed; a process that ends by itself
    is started again with the same addresses and data, which is said on standard error; when `roq
    up` ends, nothing of the cluster is left. Exits with 0, or with 69 (ZooKeeper is wanted, and it
    or Java is missing), 70 (a part crashed at the start, or five times within a minute) or 78 (a
    port in use, a setting wrong).

    \b
    Example:
      roq up
      roq up --hosts 3 --data-dir ~/roq --port-base 6000
      roq up --managers 2 --registry zookeeper --zookeepers 3
      roq up --slots 1 --provider local
    """
    try:
        settings = LocalSettings(
            hosts=hosts,
            data_dir=data_dir,
            port_base=port_base,
            managers=managers,
            registry=registry or "",
            zookeeper=zookeeper,
            zookeepers=zookeepers,
            slots=slots,
            provider=provider,
            hosts_max=hosts_max,
            metrics=metrics,
            log_level=log_level,
            log_format=log_format,
        )
        if zookeeper and data_dir is None:
            note(
                "Logs of durable queues lie in a temporary folder that goes with this cluster, and "
                "the registry stays: name --data-dir, or such queues will lack their logs."
            )
        _Shell(settings).run()
    except StartFailed as error:
        raise Failed(text_of(error), error.exit_code) from None
    except RoQError as error:
        raise daemon_failed(error) from None


class _Shell:
    """A launcher with a terminal: says when it is ready, and ends it at a signal."""

    def __init__(self, settings: LocalSettings) -> None:
        self._reactor = Reactor()
        self._settings = settings
        self._failure: RoQError | None = None
        self._launcher = Launcher(
            self._reactor,
            settings,
            on_ready=self._ready,
            on_failed=self._failed,
            on_note=_tell,
        )

    def run(self) -> None:
        """Start, wait for the end, stop.

        Raises:
            RoQError: why it could not start, or had to end.
        """
        on_stop(self._reactor, self._stop)
        self._say(f"Starting a cluster of {many(self._settings.hosts, 'host')} …")
        try:
            self._launcher.start()
            self._reactor.run()
        finally:
            # Only after a second Ctrl-C is something still running here.
            self._launcher.kill()
            self._reactor.close()
        if self._failure is not None:
            raise self._failure

    def _ready(self, addresses: Addresses) -> None:
        click.echo(f"ready {msgspec.json.encode(addresses).decode()}")
        sys.stdout.flush()
        folder = self._launcher.folder
        if folder is not None:
            self._say(f"Logs are in {folder.path / 'log'}; Ctrl-C ends the cluster.")
        self._say(f"Next, in another terminal: {_next_step(addresses)}")

    def _failed(self, error: StartFailed) -> None:
        self._failure = error
        self._reactor.stop()

    def _stop(self) -> None:
        self._say("Stopping …")
        self._launcher.stop(self._reactor.stop)

    def _say(self, text: str) -> None:
        if sys.stderr.isatty():
            note(text)


def _tell(text: str) -> None:
    """What nobody should miss: it goes to standard error, whatever that is."""
    click.echo(text, err=True)


def _next_step(addresses: Addresses) -> str:
    port = addresses.client.rpartition(":")[2]
    other = "" if port == "5000" else f" --cluster {addresses.client}"
    return f"roq queue create orders{other}"
