"""A batch query does the work of a consumer group, and moves the group on when it is done.

    with TakenGroup(spark, cluster="127.0.0.1:5000", queue="orders", group="billing") as taken:
        taken.df.write.parquet("/data/orders")

What the query reads is fixed when the group is taken: from where the group is to the ends of the
logs. So whatever is done with its rows, and however often, the group is moved behind just these.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Self

from roq.errors import ConfigError
from roq.spark.options import read_options
from roq.spark.queue_logs import QueueLogs, offsets_at, positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TakenGroup:
    """What a group without members has not done, as rows. At the end of `with` the group is moved
    behind it, unless the body has raised.

    Args:
        spark: the session.
        options: as of the format `roq`; `group` is needed, `endingOffsets` or `endingTime` may be
            given.

    Attributes:
        df: the rows; none of what members have acknowledged.

    Raises:
        InvalidRequest: the group has members, is ordered by key or priority, or is a service.
        GroupNotFound: there is no such group.
        ConfigError: an option is missing or makes no sense.
        Unavailable: not all exchanges of the queue have answered.
    """

    def __init__(self, spark: SparkSession, **options: str) -> None:
        self._options = read_options(options, streaming=False)
        if not self._options.group:
            raise ConfigError('option "group" is missing: the name of a consumer group')
        with QueueLogs(self._options) as logs:
            said, spans = logs.take(), logs.spans()
            self._position = positions(said)
            end = offsets_at(self._options.end, "endingOffsets", logs, spans, self._options)
        self._until = {key: at for key, at in end.next.items() if key in said}
        fixed = {key: each for key, each in options.items() if key.lower() != "endingtime"}
        self.df: DataFrame = (
            spark.read.format("roq")
            .options(**fixed)
            .option("endingOffsets", json.dumps({str(key): at for key, at in self._until.items()}))
            .option(
                "groupPosition",
                json.dumps({str(key): base64.b64encode(said[key]).decode() for key in self._until}),
            )
            .load()
        )

    def move(self) -> None:
        """The rows are done: the group goes on behind them. May be repeated.

        Raises:
            InvalidRequest: it has got members meanwhile, or was sought, or deleted and made
                anew. Where it was not moved its messages are handed out, or read by the next query.
            GroupNotFound: it was deleted.
            Unavailable: not all exchanges have answered: repeat it.
        """
        with QueueLogs(self._options) as logs:
            logs.move(self._position, self._until)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.move()
