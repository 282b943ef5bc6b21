"""Many relocations on a virtual clock.

    python -m roq.simulation.experiments.relocations --count 10000

Publishers are sent from exchange to exchange, also to several at once, while they publish: over
seeds, sizes, rates and numbers, in every second trial with connections that break, fan-outs that
drop, exchanges that stand still and exchanges that die. The machines are those of the real
processes. Each live subscriber's history is checked; the same seed gives the same history.

`--naive` publishes as one would without all this: at a move it closes the connection, opens one to
the new exchange and goes on, without draining and without sending anything again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from roq.simulation.real import results
from roq.simulation.real.bar import bar
from roq.simulation.real.results import Machine
from roq.simulation.real.timings import percentile
from roq.simulation.virtual.relocation_case import Case
from roq.simulation.virtual.relocation_trial import Result, Trial

NAME: Final = "relocations"
PER_TRIAL: Final = 50
BAD_SHOWN: Final = 10


class Part(msgspec.Struct, kw_only=True):
    """The trials of one kind."""

    name: str
    result: Result


class Outcome(msgspec.Struct, kw_only=True):
    """What came out."""

    machine: Machine
    seed: int
    count: int
    naive: bool
    seconds: float
    """Real time."""
    parts: list[Part]
    bad_seeds: list[int] = []
    """Seeds of trials in which something was wrong: `--seed N --count 1` has it again."""

    @property
    def whole(self) -> Result:
        """All trials."""
        total = Result()
        for part in self.parts:
            total.add(part.result)
        return total


def run(
    count: int,
    seed: int,
    *,
    faults: bool | None = None,
    naive: bool = False,
    check_duplicates: bool = True,
    on_trial: Callable[[Result], None] | None = None,
) -> tuple[list[Part], list[int]]:
    """Run trials until there were so many relocations.

    Args:
        count: accepted relocations.
        seed: of the first trial; the others follow it.
        faults: None: in every second trial.
        naive, check_duplicates: see `VirtualQueue`.
        on_trial: told of each one.

    Returns:
        The results by kind, and the seeds of trials in which something was wrong.
    """
    parts: dict[str, Part] = {}
    bad: list[int] = []
    done = 0
    while done < count:
        case = Case.draw(
            seed,
            min(PER_TRIAL, count - done),
            faults=faults,
            naive=naive,
            check_duplicates=check_duplicates,
        )
        result = Trial(case).run()
        part = parts.setdefault(case.kind, Part(name=case.kind, result=Result()))
        part.result.add(result)
        if not result.ok:
            bad.append(seed)
        done += max(1, result.accepted)
        seed += 1
        if on_trial is not None:
            on_trial(result)
    return [parts[name] for name in sorted(parts)], bad


@click.command(short_help="Relocations on a virtual clock.")
@results.option("--count", click.IntRange(1, 10_000_000), 10_000, "Relocations.")
@results.option("--seed", click.IntRange(0), 0, "Of the first trial.")
@click.option(
    "--faults/--no-faults", default=None, help="In all trials, in none; else in every second one."
)
@click.option("--naive", is_flag=True, help="Show what the naive hand-off loses instead.")
@results.scenario()
def main(
    count: int, seed: int, faults: bool | None, naive: bool, output: Path, as_json: bool
) -> bool:
    """Send publishers from exchange to exchange on a virtual clock, and check what every live
    subscriber got.

    Exits with 1 if a message was lost, doubled or came out of order.

    \b
    Example:
      python -m roq.simulation.experiments.relocations --count 10000
      python -m roq.simulation.experiments.relocations --count 500 --naive
    """
    began = time.monotonic()
    with results.measured() as machine, bar("relocations") as shown:
        done = 0

        def on_trial(result: Result) -> None:
            nonlocal done
            done += result.accepted
            shown(done, count)

        parts, bad = run(count, seed, faults=faults, naive=naive, on_trial=on_trial)
    outcome = Outcome(
        machine=machine, seed=seed, count=count, naive=naive,
        seconds=round(time.monotonic() - began, 1), parts=parts, bad_seeds=bad,
    )  # fmt: skip
    name = f"{NAME}-naive" if naive else NAME
    results.told(outcome, name, output, show, as_json=as_json)
    return outcome.whole.ok


def show(out: Console, outcome: Outcome) -> None:
    """Print it for people."""
    whole = outcome.whole
    happened = ", ".join(f"{count} {name}" for name, count in sorted(whole.faults.items()))
    pause = ", ".join(
        f"p{percent} {percentile(whole.pauses_us, percent) / 1000:.2f} ms" for percent in (50, 99)
    )
    out.print(
        f"{whole.accepted:,} relocations ({whole.striped:,} to several exchanges) in "
        f"{whole.trials} trials from seed {outcome.seed} on, {whole.seconds:,.0f} virtual seconds "
        f"in {outcome.seconds:,.0f} real ones; {whole.failed} failed, {whole.overtaken} overtaken, "
        f"{whole.given_up} given up; nothing was sent for {pause}"
    )
    out.print(f"went wrong: {happened or 'nothing'}\n")
    title = "What live subscribers got" + (", after naive hand-offs" if outcome.naive else "")
    columns = (
        "", "relocations#", "sent#", "received#", "lost#", "duplicated#", "reordered#",
        "sent twice for nothing#", "stuck#",
    )  # fmt: skip
    rows = [
        _row(part.name, part.result) for part in [*outcome.parts, Part(name="all", result=whole)]
    ]
    out.print(results.table(title, columns, rows))
    if outcome.bad_seeds:
        seeds = ", ".join(str(seed) for seed in outcome.bad_seeds[:BAD_SHOWN])
        out.print(f"\n{len(outcome.bad_seeds)} trials went wrong, seeds {seeds}…", style="bold red")


def _row(name: str, result: Result) -> tuple[str, ...]:
    figures = (
        result.accepted, result.sent, result.received, result.lost + result.foreign,
        result.duplicated, result.reordered, result.needless, result.stuck,
    )  # fmt: skip
    return (name, *(f"{figure:,}" for figure in figures))


if __name__ == "__main__":
    main()
