"""Kafka on one node (KRaft) with confluent-kafka: acknowledged by the leader, which is alone.

The broker writes into the system's memory and acknowledges; with `flush.messages=1` it syncs first.
Its jars are looked for in the folder that ROQ_KAFKA_JARS names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Run
from roq.benchmarks.clients import parts, timed
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS, ProgramServer
from roq.benchmarks.processes import BenchmarkError, answers, free_port

if TYPE_CHECKING:
    from confluent_kafka import Producer

MODULE: Final = "kafka"
JARS: Final = "ROQ_KAFKA_JARS"
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
BUFFER_MESSAGES: Final = 1_000_000


class KafkaServer(ProgramServer):
    """One process that is broker and controller."""

    def __init__(self) -> None:
        super().__init__("Kafka")

    def start(self, directory: Path) -> None:
        """Format its storage, start it, and wait until it serves."""
        home = directory / "kafka"
        home.mkdir(exist_ok=True)
        port, controller = free_port(), free_port()
        self._options = {"address": f"127.0.0.1:{port}"}
        configuration = home / "server.properties"
        configuration.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "offsets.topic.replication.factor=1\nauto.create.topics.enable=false\n"
            f"log.dirs={home / 'logs'}\n"
        )
        java = [str(shutil.which("java")), "-Xmx1g", "-cp", f"{os.environ[JARS]}/*"]
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c",
             str(configuration)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if formatted.returncode:
            raise BenchmarkError(f"Kafka's storage cannot be formatted: {formatted.stderr[-300:]}")
        self._run([*java, "kafka.Kafka", str(configuration)], directory / "kafka.log")
        self._await(lambda: answers(port))


class KafkaPublisher:
    """The sending side; with style `flush` its topic is synced before each acknowledgement.

    Attributes:
        ack_us: how long each acknowledgement took, when it was measured.
    """

    def __init__(self, address: str, style: str) -> None:
        self.ack_us: list[float] = []
        self._address = address
        self._style = style
        self._producer: Producer | None = None

    def open(self, run: Run) -> None:
        """Make the topic and a producer."""
        from confluent_kafka import Producer  # noqa: PLC0415 - only in the process that uses it
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

        config = {"flush.messages": "1"} if self._style == "flush" else {}
        topic = NewTopic(run.topic.rstrip("."), num_partitions=1, config=config)
        admin = AdminClient({"bootstrap.servers": self._address})
        for future in admin.create_topics([topic]).values():
            future.result(OPEN_SECONDS)
        self._producer = Producer(
            {
                "bootstrap.servers": self._address, "acks": "all",
                "linger.ms": 0 if run.rate else 5,
                "queue.buffering.max.messages": BUFFER_MESSAGES,
            }
        )  # fmt: skip

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Produce message by message, which is all that there is; wait for all at the end."""
        producer, topic = self._open_producer(), run.topic.rstrip(".")
        for part in parts(run, payloads):
            for payload in part:
                try:
                    producer.produce(topic, payload)
                except BufferError:
                    producer.poll(0.1)
                    producer.produce(topic, payload)
            producer.poll(0)
        if producer.flush(RUN_SECONDS):
            raise BenchmarkError("not everything was acknowledged")

    def pace(self, run: Run) -> None:
        """Produce at a rate, and wait for each acknowledgement."""
        producer, topic = self._open_producer(), run.topic.rstrip(".")

        def send(payload: bytes) -> None:
            producer.produce(topic, payload)
            producer.flush(RUN_SECONDS)

        self.ack_us = timed(run, send)

    def close(self) -> None:
        """Forget the producer."""
        self._producer = None

    def _open_producer(self) -> Producer:
        assert self._producer is not None  # noqa: S101 - the harness opens first
        return self._producer


def publisher(style: str, options: dict[str, str]) -> KafkaPublisher:
    """The sending side."""
    return KafkaPublisher(options["address"], style)


def missing() -> str | None:
    """Why this contender cannot run here."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not os.environ.get(JARS):
        return f"{JARS} names no folder with Kafka's jars (org.apache.kafka:kafka_2.13)"
    if importlib.util.find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed"
    return None
