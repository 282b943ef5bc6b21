"""How a monitor is, as it says itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from roq.model import exchange_name
from roq.protocol.control import OTHER_GROUPS, Health
from roq.protocol.reports import RETENTION, Check

NAMES_MAX: Final = 10
FULL_MAX: Final = 3
"""Disks that are described."""
GROUPS_MAX: Final = 3
"""Groups that are named."""


def of_monitor(
    queue: str,
    state: str,
    *,
    takeover: bool,
    serving: Collection[int],
    missing: Collection[int],
    trouble: str,
    policy_trouble: str,
    holding: Collection[int],
    behind: Collection[int],
    full: Mapping[int, str],
    unread: Mapping[int, str],
    held: Mapping[int, str],
    apart: tuple[Mapping[str, Collection[int]], Collection[int]],
    request_id: int,
) -> Health:
    """The answer of a monitor: ready if it shows exchanges to clients.

    Args:
        queue: whose it is.
        state: a word for it.
        takeover: it has just taken over.
        serving: numbers of the exchanges that report to it.
        missing: numbers of those that the queue has and that do not.
        trouble: why no configuration manager tells it the rules; empty if one does.
        policy_trouble: why the policy that is wanted decides nothing; empty if it does.
        holding: numbers of exchanges whose publishers wait for a slow subscriber.
        behind: numbers of those that have left one behind.
        full: those that accept nothing for want of room on their disks, and why.
        unread: those whose disks do not give all of their logs, and what.
        held: those whose logs let nothing go that groups have done, and what keeps it.
        apart: what makes the groups of exchanges differ, as `Exchanges.groups_apart` gives it.
        request_id: of the request that is answered.
    """
    policy = Check(
        name="policy", ok=not policy_trouble, detail=policy_trouble or "decides", essential=False
    )
    checks = [_exchanges(serving, missing), _manager(trouble), policy, _slow(holding, behind)]
    if full:
        text = f"{_names(full)} hold publishers back. {_shown(full)}"
        checks.append(Check(name="disks", ok=False, detail=text, essential=False))
    if unread:
        checks.append(Check(name="logs", ok=False, detail=_shown(unread), essential=False))
    if held:
        text = _held(queue, held, *apart)
        checks.append(Check(name=RETENTION, ok=False, detail=text, essential=False))
    if takeover:
        text = "has just taken over and waits for exchanges to report; messages flow"
        checks.insert(0, Check(name="settled", ok=False, detail=text))
    return Health(
        id=request_id,
        role="monitor",
        name=queue,
        ready=state == "running" and all(check.ok for check in checks if check.essential),
        state=state,
        checks=checks,
    )


def _exchanges(serving: Collection[int], missing: Collection[int]) -> Check:
    detail = f"{_names(serving)} there" if serving else "none is there: no client can publish"
    if missing:
        detail += f"; missing: {_names(missing)}"
    return Check(
        name="exchanges",
        ok=bool(serving) and not missing,
        detail=detail,
        essential=not serving,
    )


def _manager(trouble: str) -> Check:
    detail = f"{trouble}: no growing, no shrinking until one answers" if trouble else "answers"
    return Check(name="manager", ok=not trouble, detail=detail, essential=False)


def _slow(holding: Collection[int], behind: Collection[int]) -> Check:
    texts = []
    if holding:
        texts.append(f"publishers of {_names(holding)} wait for one that reads slowly")
    if behind:
        texts.append(f"{_names(behind)} left one behind, which may lose messages")
    return Check(
        name="subscribers",
        ok=not texts,
        detail="; ".join(texts) or "read as fast as is published",
        essential=False,
    )


def _held(
    queue: str,
    held: Mapping[int, str],
    lacking: Mapping[str, Collection[int]],
    unknown: Collection[int],
) -> str:
    texts = {number: text for number, text in held.items() if text != OTHER_GROUPS}
    why = _shown(texts)
    if len(texts) < len(held):
        differ = [f"{_names(unknown)}: groups not known, or others when last heard"] * bool(unknown)
        differ += [f"group {name!r} is not at {_names(lacking[name])}" for name in sorted(lacking)]
        more = len(differ) - GROUPS_MAX
        named = ", ".join([*differ[:GROUPS_MAX], *[f"and {more} more"] * (more > 0)])
        why = "; ".join(filter(None, [OTHER_GROUPS + f" ({named})" * bool(named), why]))
    return (
        f"logs keep what groups have done. {why}. See `roq group list {queue}`: one that is paused "
        f"goes on with `roq group resume {queue} GROUP`, one without members, or that is not "
        f"everywhere, with its consumers; `roq group delete {queue} GROUP` if nobody needs it"
    )


def _shown(texts: Mapping[int, str]) -> str:
    return "; ".join(
        f"{exchange_name(number)}: {texts[number]}" for number in sorted(texts)[:FULL_MAX]
    )


def _names(numbers: Collection[int]) -> str:
    shown = ", ".join(exchange_name(number) for number in sorted(numbers)[:NAMES_MAX])
    more = len(numbers) - NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown
