"""`roq gcm`, and what `roq host` needs to run a host manager: the daemons in the foreground."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def daemon_options(function: F) -> F:
    """Give a command `--config` and `--ready-fd`."""
    config = click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Configuration file. If not given it is looked for in $ROQ_HOME/config, ./config and "
        "/etc/roq; environment variables override single keys.",
    )
    ready = click.option(
        "--ready-fd",
        type=click.IntRange(min=0),
        help="Descriptor that gets one line of JSON once the daemon serves.",
    )
    return config(ready(function))


@click.command(short_help="Run a configuration manager.")
@daemon_options
def gcm(config: Path | None, ready_fd: int | None) -> None:
    """Run a configuration manager: queues, hosts, management interface, broadcast.

    Several may run in one cluster; one leads, the others name it. It runs until SIGTERM or Ctrl-C
    and exits with 0, or with 69 (the registry away at the start), 70 (crashed) or 78 (configuration
    wrong, port in use).

    \b
    Example:
      roq gcm --config config/gcm.toml
      ROQ_GCM_ZK_SERVERS=zk1:2181,zk2:2181 roq gcm
    """
    from roq.gcm.__main__ import main  # noqa: PLC0415 - a client command need not load a daemon

    raise SystemExit(main(_arguments(config, ready_fd)))


def run_host_manager(config: Path | None, ready_fd: int | None) -> None:
    """Run a host manager; ends the process."""
    from roq.hcm.__main__ import main  # noqa: PLC0415 - a client command need not load a daemon

    raise SystemExit(main(_arguments(config, ready_fd)))


def _arguments(config: Path | None, ready_fd: int | None) -> list[str]:
    arguments = [] if config is None else ["--config", str(config)]
    return arguments if ready_fd is None else [*arguments, "--ready-fd", str(ready_fd)]
