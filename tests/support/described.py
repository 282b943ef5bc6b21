"""A queue as a manager describes it; no test in here."""

from __future__ import annotations

import msgspec

from roq.model import Limits
from roq.protocol.public_answers import QueueDescription


def described() -> QueueDescription:
    """Queue work with the exchanges x1 and x2."""
    exchanges = [
        {
            "Name": f"x{number}", "Number": number, "Host": "h", "Data": "d", "Live": "l",
            "State": "running", "Epoch": 1, "Pid": 1,
        }
        for number in (1, 2)
    ]  # fmt: skip
    document = {
        "Name": "work", "Host": "h", "State": "running", "Running": True, "Monitor": "",
        "Durability": "none", "Statistics": "", "Created": 0.0, "QueueId": (b"q" * 16).hex(),
        "Limits": msgspec.to_builtins(Limits()), "Rules": {}, "Exchanges": exchanges,
    }  # fmt: skip
    return msgspec.convert(document, QueueDescription)
