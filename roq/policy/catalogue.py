"""RoQ's own policies by name, and what a user's own must look like."""

from __future__ import annotations

from typing import Final

from roq.errors import ConfigError
from roq.policy.balanced import Balanced
from roq.policy.known import Known
from roq.policy.snapshot import Decision, Memory, Policy, QueueView
from roq.policy.spread import Spread

# The policy "static": publishers stay where they were assigned, nothing grows or shrinks.


class Static:
    """Decides nothing. For queues that are scaled by hand, and to compare others with."""

    def decide(
        self,
        view: QueueView,  # noqa: ARG002 - part of the contract
        memory: Memory,
    ) -> tuple[list[Decision], Memory]:
        """Nothing, always."""
        return [], memory


DEFAULT: Final = "balanced"
ENTRY_POINTS: Final = "roq.policies"
"""The group in which other packages offer policies."""

POLICIES: Final[dict[str, Policy]] = {
    "balanced": Balanced(),
    "known": Known(),
    "spread": Spread(),
    "static": Static(),
}
"""Name → policy. They keep nothing themselves, so all queues share them."""


def as_policy(found: object, name: str) -> Policy:
    """The policy that an entry point gives: an object with `decide`, or a class of such objects.

    Raises:
        ConfigError: it is neither, or making the object fails.
    """
    if isinstance(found, type):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise ConfigError(f"policy {name!r} cannot be made: {error!r}") from error
    if not callable(getattr(found, "decide", None)):
        raise ConfigError(
            f"policy {name!r} is {found!r:.100}, which has no method decide(view, memory)"
        )
    return found  # type: ignore[return-value]  # its decisions are checked each time
