"""What a query does about messages that are lost to it: an error, unless the loss is accepted.

A loss that is accepted by the name of its log stays accepted when the query starts again; so the
option may stay, and still no loss of another log is passed over.
"""

from __future__ import annotations

import json
import logging

from roq.errors import RoQError
from roq.model import LogId
from roq.spark.options import ALL, Options

log = logging.getLogger(__name__)


class DataLoss(RoQError):
    """Messages have left a log before this query has read them."""


def lose(options: Options, key: LogId, text: str, *, below: int | None = None) -> None:
    """Messages of a log are lost to this query.

    Args:
        key: the log; generation 0: nothing is known of it but the number of its exchange.
        text: what is lost.
        below: it stood below this offset; None: the log is gone.

    Raises:
        DataLoss: that is not accepted. Says how it is.
    """
    if options.fail_on_data_loss and not _accepts(options, key, below):
        raise DataLoss(
            f"{text}. To go on without them, set option acceptedLoss to "
            f"'{_accepting(options, key, below)}': it may stay, as it accepts nothing of others. "
            'Option failOnDataLoss "false" accepts whatever is lost'
        )
    log.warning("%s", text, extra={"event": "data_loss"})


def _accepts(options: Options, key: LogId, below: int | None) -> bool:
    if key not in options.accepted:
        return False
    most = options.accepted[key]
    return most is None or (below is not None and below <= most)


def _accepting(options: Options, key: LogId, below: int | None) -> str:
    """The option with which this is accepted, together with what it accepts already."""
    accepted = {**options.accepted, key: below}
    return json.dumps({str(each): ALL if most is None else most for each, most in accepted.items()})
