"""`roq console`: the cluster in a browser."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from roq.cli.client import check_addresses
from roq.cli.failures import CONSOLE, daemon_failed, wanted
from roq.cli.options import address_given, cluster_after
from roq.console.settings import PORT, ConsoleSettings, MetricLink, read_token
from roq.errors import ConfigError
from roq.runtime.structured_logs import FORMATS, LEVELS, configure


@click.command(short_help="Show and operate the cluster in a browser.")
@cluster_after
@click.option(
    "--bind", default="127.0.0.1", show_default=True, metavar="ADDRESS",
    help="Where it listens. Any other than a loopback address wants a token.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True,
    help="Its port; 0: any free one.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False),
    help="Who knows the first line of this file may change things; `openssl rand -hex 24` makes "
    "one.",
)  # fmt: skip
@click.option(
    "--reader-token-file", type=click.Path(path_type=Path, dir_okay=False),
    help="Who knows the first line of this file may look.",
)  # fmt: skip
@click.option("--read-only", is_flag=True, help="Nobody may change anything.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST",
    help="A further host name under which browsers may ask for it; may be repeated. With a token "
    "and no name it answers under any.",
)  # fmt: skip
@click.option(
    "--metric-link", "links", multiple=True, metavar="NAME=URL",
    help="A link to a dashboard on the pages of what it names in braces: {queue}, {exchange}, "
    "{host}, {group}; may be repeated.",
)  # fmt: skip
@click.option(
    "--jobs", default="", metavar="DATABASE", envvar="ROQ_JOBS", show_envvar=True,
    help="Database of jobs whose pages are shown as well, as `roq jobs` takes it.",
)  # fmt: skip
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="How much it logs.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="For people or as JSON lines.",
)
def console(
    address: str,
    bind: str,
    port: int,
    token_file: Path | None,
    reader_token_file: Path | None,
    read_only: bool,
    names: tuple[str, ...],
    links: tuple[str, ...],
    jobs: str,
    log_level: str,
    log_format: str,
) -> None:
    """Show and operate the cluster in a browser, until Ctrl-C or SIGTERM.

    Health and every stall with its reason, queues with their exchanges and publishers, moves as
    they happen, hosts, consumer groups, dead letters; and what an operator does with them, each
    after a page that says what it will do. It prints one line `ready {…}` when it serves, and needs
    the extra `console`. A cluster that is away is told on the pages, and found again.

    Without a token it answers connections from this machine alone, and whoever has an account
    there may operate the cluster. Actions are in its log, on standard error.

    \b
    Example:
      roq console
      roq console --read-only
      roq console --metric-link 'Grafana=https://grafana/d/roq?var-queue={queue}'
      roq console --bind 0.0.0.0 --token-file console.token --name roq.example
    """
    del address  # read by address_given
    cluster = check_addresses(address_given(click.get_current_context()))
    try:
        settings = ConsoleSettings(
            cluster=cluster,
            bind=bind,
            port=port,
            token=read_token(token_file) if token_file else "",
            reader_token=read_token(reader_token_file) if reader_token_file else "",
            read_only=read_only,
            names=names,
            links=tuple(map(MetricLink.of, links)),
            jobs=jobs,
        )
        configure(log_level, log_format, process="console")
        wanted("roq.console.server", "the console", CONSOLE).ConsoleServer(
            settings, _ready
        ).serve_until_told()
    except ConfigError as error:
        raise daemon_failed(error) from None


def _ready(url: str) -> None:
    click.echo(f"ready {msgspec.json.encode({'url': url}).decode()}")
    sys.stdout.flush()
