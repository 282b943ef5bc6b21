"""The entry point of `roq` and of `python -m roq`.

It imports next to nothing, so that Ctrl-C ends the command without a traceback from the beginning:
everything else takes a quarter of a second to load.
"""

from __future__ import annotations

from roq.cli.interrupts import dies_by_interrupt


def main() -> None:
    """Run what the command line says."""
    with dies_by_interrupt():
        from roq.cli.commands import run  # noqa: PLC0415 - see above
    run()
