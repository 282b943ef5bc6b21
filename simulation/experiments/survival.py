"""Clusters on a virtual clock, in which everything fails.

Each seed is one cluster of real machines (managers, hosts, monitors, exchanges, clients) in which
things go wrong that are drawn from the seed: processes die or stand still, machines vanish,
networks are cut, disks are slow, clocks jump, ZooKeeper is away or empty. Then everything is put
right, and all promises are looked at. The same seed gives the same history:

    python -m roq.simulation.experiments.survival --count 10000     many seeds, in several processes
    python -m roq.simulation.experiments.survival --seed 7 --trace  one seed, and all that happens
    python -m roq.simulation.experiments.survival --seed 7 --without cut  and without one kind
    python -m roq.simulation.experiments.survival --groups --count 300    with a consumer group
    python -m roq.simulation.experiments.survival --requests --count 300  with a service
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from roq.cli.output import print_json
from roq.model import VOLATILE
from roq.protocol.public import DURABILITIES
from roq.simulation.real import results
from roq.simulation.real.bar import bar
from roq.simulation.real.pool import end_with_parent
from roq.simulation.real.results import Machine
from roq.simulation.virtual.kinds import KINDS
from roq.simulation.virtual.trial import Case, Result, Trial

NAME: Final = "survival"
TROUBLE: Final = click.Choice(list(KINDS))
CHUNK: Final = 20
"""Seeds that one process takes at a time."""
GARBAGE_EVERY: Final = 10
"""Seeds between two looks for garbage, which a trial leaves much of, and only at its end."""


class Bad(msgspec.Struct, kw_only=True):
    """A seed in which a promise was broken."""

    seed: int
    broken: list[str]
    troubles: dict[str, int]


class Outcome(msgspec.Struct, kw_only=True):
    """What came of many seeds; messages are counted once for each subscriber."""

    machine: Machine
    first: int
    count: int
    seconds: float
    """Real time."""
    virtual_seconds: float = 0.0
    sent: int = 0
    received: int = 0
    counted_lost: int = 0
    """Reported as lost, and excused: a process was cut off while an exchange died, or for long."""
    seeds_with_losses: int = 0
    unpromised: int = 0
    """Did not arrive, and their publisher died with them in its hands."""
    heal_seconds_most: float = 0.0
    heal_share_most: float = 0.0
    """Of what was promised for the trial in question, the largest share that it took to heal."""
    troubles: dict[str, int] = {}
    checked: dict[str, int] = {}
    """Promises, and how often they were looked at."""
    bad: list[Bad] = []


class Wish(msgspec.Struct, frozen=True):
    """What is to go wrong, and with what."""

    only: Collection[str] = ()
    without: Collection[str] = ()
    durability: str = VOLATILE
    shared: bool = False
    asked: bool = False

    def case(self, seed: int) -> Case:
        """What the seed says then."""
        return Case.draw(
            seed, self.only, self.without, self.durability, shared=self.shared, asked=self.asked
        )

    def replay_command(self, seed: int) -> str:
        """What replays a seed."""
        options = [f"--durability {self.durability}"] if self.durability != VOLATILE else []
        options += ["--groups"] * self.shared + ["--requests"] * self.asked
        options += [f"--only {kind}" for kind in self.only]
        options += [f"--without {kind}" for kind in self.without]
        return " ".join([f"python -m roq.simulation.experiments.survival --seed {seed}", *options])


USUAL: Final = Wish()


def try_seeds(seeds: Iterable[int], wish: Wish = USUAL) -> Iterator[Result]:
    """Run one trial for each seed, in this process."""
    quiet_before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for tried, seed in enumerate(seeds, start=1):
            result = Trial(wish.case(seed)).run()
            if tried % GARBAGE_EVERY == 0:
                gc.collect()
            yield result
    finally:
        gc.enable()
        gc.unfreeze()
        logging.disable(quiet_before)


def _try_chunk(seeds: range, wish: Wish) -> list[bytes]:
    """Run in a process of its own; gives encoded results."""
    return [msgspec.msgpack.encode(result) for result in try_seeds(seeds, wish)]


def _try_all(seeds: range, processes: int, wish: Wish) -> Iterator[Result]:
    if processes == 1:
        yield from try_seeds(seeds, wish)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=end_with_parent) as pool:
        chunks = (seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK))
        futures = [pool.submit(_try_chunk, chunk, wish) for chunk in chunks]
        try:
            for future in as_completed(futures):
                for data in future.result():
                    yield msgspec.msgpack.decode(data, type=Result)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@click.command(short_help="Whole clusters in which everything fails, on a virtual clock.")
@click.option("--seed", type=click.IntRange(0), help="Try this seed alone.")
@results.option("--count", click.IntRange(1, 10_000_000), 300, "How many seeds.")
@results.option("--first", click.IntRange(0), 0, "The first of them.")
@click.option("--only", multiple=True, type=TROUBLE, help="Only this kind of trouble; repeatable.")
@click.option("--without", multiple=True, type=TROUBLE, help="Not this one; repeatable.")
@click.option(
    "--durability", type=click.Choice(DURABILITIES), default=VOLATILE, show_default=True,
    help="Of the queue; of a durable one power cuts and disks join the troubles.",
)  # fmt: skip
@click.option("--groups", "shared", is_flag=True, help="With a consumer group beside the readers.")
@click.option("--requests", "asked", is_flag=True, help="With a service, and its requesters.")
@click.option("--trace", is_flag=True, help="With --seed: show everything that happens.")
@click.option(
    "--processes", type=click.IntRange(1, 256), default=os.cpu_count() or 1,
    show_default="as many as cores", help="How many seeds are tried at once.",
)  # fmt: skip
@results.scenario()
def main(
    seed: int | None,
    count: int,
    first: int,
    only: tuple[str, ...],
    without: tuple[str, ...],
    durability: str,
    shared: bool,
    asked: bool,
    trace: bool,
    processes: int,
    output: Path,
    as_json: bool,
) -> bool:
    """Let everything fail in whole clusters, and look whether RoQ keeps its promises.

    Exits with 1 if a promise was broken, and names the seeds.

    \b
    Example:
      python -m roq.simulation.experiments.survival --count 10000
      python -m roq.simulation.experiments.survival --seed 7 --trace
      python -m roq.simulation.experiments.survival --durability flush
    """
    wish = Wish(only, without, durability, shared, asked)
    if seed is not None:
        return _try_one(seed, wish, trace=trace, as_json=as_json)
    began = time.monotonic()
    with results.measured() as machine, bar("seeds") as shown:
        outcome = Outcome(machine=machine, first=first, count=count, seconds=0.0)
        seeds = range(first, first + count)
        for done, result in enumerate(_try_all(seeds, processes, wish), start=1):
            _add(outcome, result)
            if result.broken and not as_json:
                _tell(results.console(as_json=as_json), outcome.bad[-1], wish)
            shown(done, count, f", {len(outcome.bad)} bad" if outcome.bad else "")
    outcome.seconds = round(time.monotonic() - began, 1)
    outcome.bad.sort(key=lambda bad: bad.seed)
    name = NAME if durability == VOLATILE else f"{NAME}_{durability}"
    name += "_groups" * shared + "_requests" * asked
    results.told(outcome, name, output, _show, as_json=as_json)
    return not outcome.bad


def _try_one(seed: int, wish: Wish, *, trace: bool, as_json: bool) -> bool:
    logging.disable(logging.CRITICAL)
    trial = Trial(wish.case(seed), traced=trace)
    result = trial.run()
    if as_json:
        print_json(result)
        return not result.broken
    out = results.console(as_json=False)
    if trace:
        for trouble in trial.case.plan:
            out.print(f"planned: {trouble}", style="dim", markup=False)
        for at, who, what in trial.cluster.world.trace or ():
            out.print(f"{at:9.3f}  {who:22} {what}", markup=False, highlight=False)
    out.print(
        f"seed {seed}: {trial.case.shape}, {result.seconds:.1f} virtual seconds, "
        f"{result.sent} messages, troubles: {_in_words(result.troubles)}, "
        f"history {result.checksum}",
        markup=False, highlight=False,
    )  # fmt: skip
    for broken in result.broken:
        out.print(f"broken: {broken}", style="bold red", markup=False, highlight=False)
    if not result.broken:
        out.print("all promises were kept", style="green")
    return not result.broken


def _add(outcome: Outcome, result: Result) -> None:
    outcome.virtual_seconds += result.seconds
    outcome.sent += result.sent
    outcome.received += result.received
    outcome.counted_lost += result.counted_lost
    outcome.seeds_with_losses += result.counted_lost > 0
    outcome.unpromised += result.unpromised
    if result.heal_bound:
        share = result.heal_seconds / result.heal_bound
        outcome.heal_share_most = max(outcome.heal_share_most, round(share, 2))
    outcome.heal_seconds_most = max(outcome.heal_seconds_most, result.heal_seconds)
    outcome.troubles = dict(Counter(outcome.troubles) + Counter(result.troubles))
    outcome.checked = dict(Counter(outcome.checked) + Counter(result.checked))
    if result.broken:
        outcome.bad.append(Bad(seed=result.seed, broken=result.broken, troubles=result.troubles))


def _show(out: Console, outcome: Outcome) -> None:
    out.print(
        f"{outcome.count:,} clusters from seed {outcome.first} on, "
        f"{outcome.virtual_seconds:,.0f} virtual seconds in {outcome.seconds:,.0f} real ones; "
        f"{outcome.sent:,} messages to receive, {outcome.received:,} received, "
        f"{outcome.counted_lost:,} reported as lost and excused, in {outcome.seeds_with_losses:,} "
        f"clusters, {outcome.unpromised:,} gone with their publishers; "
        f"healed within {outcome.heal_seconds_most:.1f} s, and {outcome.heal_share_most:.0%} of "
        "what was promised\n"
    )
    rows = sorted(outcome.troubles.items(), key=lambda item: -item[1])
    out.print(results.table("What went wrong", ("", "times#"), [(k, f"{n:,}") for k, n in rows]))
    out.print()
    promises = sorted(outcome.checked.items())
    out.print(
        results.table("What was looked at", ("", "times#"), [(k, f"{n:,}") for k, n in promises])
    )
    if outcome.bad:
        seeds = ", ".join(str(bad.seed) for bad in outcome.bad)
        out.print(f"\n{len(outcome.bad)} seeds went wrong: {seeds}", style="bold red")


def _tell(out: Console, bad: Bad, wish: Wish) -> None:
    """At once, for a long run may be ended early."""
    out.print(f"seed {bad.seed}: {bad.broken[0]}", style="bold red", markup=False)
    out.print(f"  {_in_words(bad.troubles)}; replay: {wish.replay_command(bad.seed)}", markup=False)


def _in_words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    main()
