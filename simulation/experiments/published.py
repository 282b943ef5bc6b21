"""The published experiment on this machine: `python -m roq.simulation.experiments.published`.

16 publishers, one more every 60 s, each with 3,400 messages of 5 kB a minute, 20 listeners on
everything, at most 4 exchanges, each on a host of its own. As it was published: 54,400 messages a
minute come in, 1,088,000 go out, four publishers are on each exchange at the end, the latency is 5
to 16 ms, and the 2nd, 3rd and 4th exchange start when the 5th, 9th and 13th publisher arrives.

The schedule is compressed (60 s become 60/20 s). Rates are half of the published ones, or `--share`
of them: 20 Python listeners that get 18,000 messages a second take more than two cores have. Limits
and links are scaled along, so everything happens in the same place. Hosts are network namespaces;
the link of each carries what four publishers cause with 20 listeners, and not what five do, so that
the host is the bottleneck as it was there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from msgspec import Meta
from rich.console import Console

from roq.client.admin.views import ScalingRules
from roq.demo.latency import Histogram
from roq.simulation.lab.report import picture
from roq.simulation.lab.report.charts import Bounds
from roq.simulation.real import environment, measures, results
from roq.simulation.real.display import Display, display
from roq.simulation.real.results import Machine, Measured, Target
from roq.simulation.real.under_load import UnderLoad, under_load

NAME: Final = "published"
EXCHANGES: Final = 4
ARRIVAL_SECONDS: Final = 60.0
PER_MINUTE: Final = 3_400
PAYLOAD: Final = 5_000
BURST: Final = 6
"""Messages that a publisher sends at a time, about ten times a second: what was published says
nothing about it, and Python listeners handle 20 times as many batches."""
LIMIT: Final = 75_000_000
OVERHEAD: Final = 1.06
"""Bytes on the wire for one of payload: headers of batches, of TCP and of Ethernet."""
FITS: Final = 4.5
"""Publishers whose fan-out the link of a host carries."""
HOLD_SECONDS: Final = 15.0
"""At full load, at the end."""
COOLDOWN_SECONDS: Final = 1
"""The schedule is compressed, so the pause after a change is as well."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    scale: Annotated[
        float,
        Meta(ge=1, le=60, description="So many times faster than published do publishers arrive."),
    ] = 20.0
    share: Annotated[
        float,
        Meta(
            ge=0.01,
            le=1,
            description="Part of the published rates; limits and links are scaled along.",
        ),
    ] = 0.5
    publishers: Annotated[int, Meta(ge=1, le=64, description="Publisher processes.")] = 16
    listeners: Annotated[
        int, Meta(ge=1, le=40, description="Subscriber processes; each gets everything.")
    ] = 20
    policy: Annotated[
        str, Meta(description="Which policy decides; `known` is the published one.")
    ] = "balanced"

    @property
    def per_minute(self) -> float:
        """Messages of each publisher."""
        return PER_MINUTE * self.share

    @property
    def limit(self) -> int:
        """Bytes a minute that one exchange may take."""
        return int(LIMIT * self.share)

    @property
    def link_megabits(self) -> float:
        """What a host's link carries outwards."""
        return FITS * self.per_minute / 60 * PAYLOAD * OVERHEAD * self.listeners * 8 / 1e6


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure, and ours."""

    text: str
    published: str
    measured: str


class Outcome(Measured, kw_only=True):
    """What happened."""

    plan: Plan
    figures: list[Published]
    started_at: dict[int, int]
    """Exchange number → how many publishers there were when its start was decided."""
    at_the_end: dict[int, int]
    """Exchange number → publishers."""
    latency_ms: dict[str, float]
    """At full load, from creation to receipt."""
    moves: int
    pause_ms: float


def run(plan: Plan, shown: Display, drawing: Path | None) -> Outcome:
    """Play it.

    Raises:
        ScenarioError, RoQError: it could not be played to its end.
    """
    rules = ScalingRules(
        name=NAME,
        exchange_bytes_per_minute=plan.limit,
        exchanges_max=EXCHANGES,
        cooldown_seconds=COOLDOWN_SECONDS,
        policy=plan.policy,
    )
    links = environment.Links(outward=plan.link_megabits)
    with (
        results.measured() as machine,
        environment.networked(EXCHANGES, links, exchanges_per_host=1) as where,
        under_load(where, shown, rules=rules) as scene,
    ):
        whole = _play(scene, plan)
        outcome = _outcome(scene, plan, machine, whole)
    if drawing is not None:
        drawing.parent.mkdir(parents=True, exist_ok=True)
        bounds = Bounds(plan.limit / 60, EXCHANGES)
        picture.write_record(scene.record, drawing, _caption(outcome), bounds)
    return outcome


def _play(scene: UnderLoad, plan: Plan) -> measures.Window:
    """Give when the full load was on."""
    workers = scene.workers
    listeners = workers.add(plan.listeners, publishes=False)
    publishers = workers.add(plan.publishers, publishes=True, payload=PAYLOAD, burst=BURST)
    scene.enter("listeners connect")
    workers.open(listeners)
    scene.record.began = scene.record.samples[-1].when
    for number, publisher in enumerate(publishers, start=1):
        scene.enter(f"publisher {number} of {plan.publishers}")
        begin = scene.elapsed
        workers.start([publisher])
        scene.until(lambda who=publisher: bool(who.id), 30.0, "a publisher connects")  # type: ignore[misc]
        workers.rate([publisher], plan.per_minute / 60)
        scene.run(max(0.0, ARRIVAL_SECONDS / plan.scale - (scene.elapsed - begin)))
    scene.enter("all publishers")
    scene.run(HOLD_SECONDS / 3)
    began = scene.record.began + scene.elapsed
    scene.run(HOLD_SECONDS * 2 / 3)
    whole = measures.Window(began, scene.record.began + scene.elapsed)
    workers.rate(publishers, 0)
    scene.enter("the last messages arrive")
    scene.finish()
    return whole


def _outcome(scene: UnderLoad, plan: Plan, machine: Machine, whole: measures.Window) -> Outcome:
    record = scene.record
    inward = 60 * measures.rate(record.samples, whole, "messages_in")
    outward = 60 * measures.rate(record.samples, whole, "messages_out")
    at_the_end = measures.publishers_at(record.samples, whole.end)
    arrivals = sorted(worker.opened or 0.0 for worker in scene.workers.publishers)
    started_at = {
        document.number: sum(arrival <= when - document.seconds for arrival in arrivals)
        for when, document in record.scalings("out")
    }
    latency = Histogram()
    for worker in scene.workers.subscribers:
        if worker.finished is not None:
            latency.merge(Histogram(worker.finished.latency))
    milliseconds = {
        name: round(1_000 * latency.percentile(percent), 2)
        for name, percent in (("p50", 50), ("p90", 90), ("p99", 99))
    }
    steady = [value for when, value in measures.latency_of(record) if whole.begin < when]
    counts = results.counts(scene.workers.judge)
    expected = plan.publishers * plan.per_minute
    mean = sum(steady) / len(steady) if steady else 0.0
    arrived = [started_at[number] for number in sorted(started_at)]
    return Outcome(
        machine=machine,
        plan=plan,
        figures=[
            _figure("messages in, a minute", f"{54_400:,}", _of(inward, plan)),
            _figure("messages out, a minute", f"{1_088_000:,}", _of(outward, plan)),
            _figure(
                "publishers on each exchange at the end",
                "4, 4, 4, 4",
                ", ".join(str(count) for _, count in sorted(at_the_end.items())),
            ),
            _figure(
                "publishers when exchange 2, 3 and 4 start",
                "5, 9, 13",
                ", ".join(map(str, arrived)) or "-",
            ),
            _figure("mean latency at full load", "5 to 16 ms", f"{mean:.1f} ms"),
        ],
        started_at=started_at,
        at_the_end=at_the_end,
        latency_ms={**milliseconds, "mean": round(mean, 2)},
        moves=len(record.moves()),
        pause_ms=max((move.pause_ms for _, move in record.moves()), default=0.0),
        counts=[counts],
        targets=[
            Target(text="messages in, share of what was sent",
                   measured=inward / expected, goal=0.97, at_least=True),
            Target(text="messages out, share of what was sent to all",
                   measured=outward / expected / plan.listeners, goal=0.97, at_least=True),
            Target(text="exchanges at the end",
                   measured=len(at_the_end), goal=EXCHANGES, at_least=True),
            Target(text="publishers at the busiest exchange at the end",
                   measured=max(at_the_end.values(), default=0),
                   goal=plan.publishers / EXCHANGES),
            Target(text="mean latency at full load", measured=mean, goal=16.0, unit="ms"),
        ],
    )  # fmt: skip


def _of(value: float, plan: Plan) -> str:
    """A rate, and what part of the published one was wanted."""
    return f"{value:,.0f}" + (f" (of {plan.share:.0%})" if plan.share != 1 else "")


def _figure(text: str, published: str, measured: str) -> Published:
    return Published(text=text, published=published, measured=measured)


def _caption(outcome: Outcome) -> picture.Caption:
    plan, (counts,) = outcome.plan, outcome.counts
    return picture.Caption(
        "The published experiment",
        f"{plan.publishers} publishers of {plan.per_minute:,.0f} messages of 5 kB a minute, one "
        f"more every {ARRIVAL_SECONDS / plan.scale:g} s, {plan.listeners} listeners;\n"
        f"of {counts.sent:,} messages {counts.lost} lost, {counts.duplicated} doubled, "
        f"{counts.reordered} reordered",
        f"hosts are network namespaces with links of {plan.link_megabits:.0f} Mbit/s, policy "
        f"{plan.policy}; " + results.machine_text(outcome.machine).plain,
    )


@click.command(short_help="The published experiment on this machine.")
@results.planned(Plan)
@results.scenario("Directory for JSON and picture.")
def main(plan: Plan, output: Path, as_json: bool) -> bool:
    """Play the published experiment: 16 publishers that arrive one by one, 20 listeners, at most 4
    exchanges, each on a host (a network namespace) with a limited link. Needs root.

    The schedule is compressed; rates are a part of the published ones. Exits with 1 if a
    message was lost, doubled or came out of order, or the figures are not reached.

    \b
    Example:
      sudo python -m roq.simulation.experiments.published
      sudo python -m roq.simulation.experiments.published --policy known --scale 10
    """
    drawing = output / f"{NAME}.png"
    with display(as_json=as_json) as shown:
        outcome = run(plan, shown, drawing)
    results.told(outcome, NAME, output, _show, as_json=as_json, drawing=drawing)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    rows = [(each.text, each.published, each.measured) for each in outcome.figures]
    out.print(results.table("The published figures and ours", ("", "published#", "here#"), rows))
    latency = ", ".join(f"{name} {value} ms" for name, value in outcome.latency_ms.items())
    out.print(
        f"\nlatency {latency}; {outcome.moves} publishers moved, the longest pause "
        f"{outcome.pause_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
