"""The policy "static": publishers stay where they were assigned, nothing grows or shrinks."""

from __future__ import annotations

from roq.policy.snapshot import Decision, Memory, QueueView


class Static:
    """Decides nothing. For queues that are scaled by hand, and to compare others with."""

    def decide(
        self,
        view: QueueView,  # noqa: ARG002 - part of the contract
        memory: Memory,
    ) -> tuple[list[Decision], Memory]:
        """Nothing, always."""
        return [], memory
