"""A mistake, and which quick tests are to notice those of a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EXCHANGE: Final = ("tests/unit/exchange", "tests/property/test_exchange_core.py")
RING: Final = ("tests/unit/log", "tests/property/test_log_contract.py")
DISK: Final = (
    "tests/unit/log",
    "tests/property/test_log_contract.py",
    "tests/property/test_power_loss.py",
    "tests/property/test_index_starts.py",
)
INDEXES: Final = ("tests/property/test_index_starts.py",)
KEYS: Final = ("tests/unit/log/test_key_index.py", "tests/unit/log/test_key_search.py")
CHAIN: Final = (
    "tests/unit/read/test_offset_chain.py",
    "tests/unit/read/test_reader.py",
    "tests/property/test_reception.py",
)
RESEQUENCER: Final = (
    "tests/unit/client/subscribe/test_resequencer.py",
    "tests/unit/client/subscribe/test_losses.py",
    "tests/unit/client/subscribe/test_stream.py",
    "tests/property/test_loss_rules.py",
    "tests/property/test_reception.py",
)
SEND_WINDOW: Final = (
    "tests/unit/client/publish/test_send_window.py",
    "tests/unit/client/publish/test_replay.py",
    "tests/unit/client/publish/test_machine.py",
    "tests/unit/client/publish/test_link.py",
    "tests/unit/client/publish/test_links.py",
    "tests/unit/client/publish/test_bound_batches.py",
    "tests/unit/client/publish/test_relocation.py",
    "tests/unit/client/publish/test_link_chooser.py",
    "tests/property/test_link.py",
)
GROUPS: Final = (
    "tests/unit/log/test_groups.py",
    "tests/unit/log/test_oldest_messages.py",
    "tests/unit/log/test_open_batches.py",
    "tests/unit/log/test_free_messages.py",
    "tests/unit/log/test_keyed_messages.py",
    "tests/unit/log/test_key_groups.py",
    "tests/unit/log/test_ranked_messages.py",
    "tests/unit/log/test_group_filter.py",
    "tests/unit/exchange/test_consumers.py",
    "tests/unit/exchange/test_late_consumers.py",
    "tests/unit/client/consume",
    "tests/property/test_groups.py",
    "tests/property/test_consumers.py",
)
ORDER: Final = (
    "tests/unit/log/test_moved_publishers.py",
    "tests/unit/log/test_ordered_group.py",
    "tests/unit/exchange/test_order_questions.py",
    "tests/unit/monitor/test_order_questions.py",
    "tests/unit/client/publish/test_relocation.py",
    "tests/property/test_relocated_order.py",
)
SERVICES: Final = (
    "tests/unit/exchange/test_services.py",
    "tests/unit/exchange/test_orphaned_answers.py",
    "tests/unit/exchange/test_request_lives.py",
    "tests/unit/exchange/test_late_services.py",
    "tests/unit/exchange/test_service_settings.py",
    "tests/unit/exchange/test_late_requests.py",
)
REQUESTED_FIRST: Final = (
    "tests/unit/log/test_service_group.py",
    "tests/unit/log/test_service_priorities.py",
    "tests/unit/log/test_orphaned_answers.py",
    "tests/unit/log/test_ranked_messages.py",
)
REQUESTS: Final = (
    "tests/unit/log/test_service_group.py",
    "tests/unit/log/test_service_priorities.py",
    "tests/unit/log/test_orphaned_answers.py",
    "tests/unit/log/test_outcomes.py",
    *SERVICES,
    "tests/unit/exchange/test_requesters.py",
    "tests/unit/client/request",
    "tests/property/test_services.py",
)
PROTOCOL: Final = ("tests/unit/protocol",)
WIRE: Final = (
    "tests/unit/protocol/test_zmtp.py",
    "tests/unit/runtime/test_zmtp_peer.py",
    "tests/unit/runtime/test_zmtp_server.py",
    "tests/unit/runtime/test_zmtp_fan_out.py",
)
LIVENESS: Final = ("tests/unit/client/subscribe/test_fan_out_liveness.py",)
PACING: Final = (
    "tests/unit/client/subscribe/test_backpressure.py",
    "tests/unit/client/subscribe/test_machine.py",
)

TRANSACTIONS: Final = (
    "tests/unit/exchange/test_transactions.py", "tests/property/test_transactions.py",
)  # fmt: skip
DONE: Final = ("tests/unit/exchange/test_done_files.py", "tests/property/test_done_files.py")
SCHEDULES: Final = ("tests/unit/jobs/test_timetable.py", "tests/unit/jobs/test_schedules.py")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        file: of the module.
        old: text that stands there once.
        new: what takes its place.
        tests: that are to notice it.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.file}: {self.old.strip().splitlines()[0]}"


def mutants(file: str, tests: tuple[str, ...], *changes: tuple[str, str]) -> tuple[Mutant, ...]:
    """Several of one module: what stands there, and what takes its place."""
    return tuple(Mutant(file, old, new, tests) for old, new in changes)
