"""Kafka on one node (KRaft) with confluent-kafka: acknowledged by the leader, which is alone.

The broker writes into the system's memory and acknowledges; with `flush.messages=1` it syncs first.
Its jars are looked for in the folder that ROQ_KAFKA_JARS names.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roq.benchmarks.case import Case, Run
from roq.benchmarks.clients import paced
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.processes import BenchmarkError, Program, answers, free_port, tail

if TYPE_CHECKING:
    from confluent_kafka import Producer

MODULE: Final = "kafka"
JARS: Final = "ROQ_KAFKA_JARS"
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
BUFFER_MESSAGES: Final = 1_000_000


class KafkaServer:
    """One process that is broker and controller."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._address = ""

    def start(self, directory: Path) -> None:
        """Format its storage, start it, and wait until it serves."""
        home = directory / "kafka"
        home.mkdir(exist_ok=True)
        port, controller = free_port(), free_port()
        self._address = f"127.0.0.1:{port}"
        configuration = home / "server.properties"
        configuration.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://{self._address}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            "offsets.topic.replication.factor=1\nauto.create.topics.enable=false\n"
            f"log.dirs={home / 'logs'}\n"
        )
        java = [str(shutil.which("java")), "-Xmx1g", "-cp", f"{os.environ[JARS]}/*"]
        log = directory / "kafka.log"
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c",
             str(configuration)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if formatted.returncode:
            raise BenchmarkError(f"Kafka's storage cannot be formatted: {formatted.stderr[-300:]}")
        self._program = Program([*java, "kafka.Kafka", str(configuration)], log)
        deadline = time.monotonic() + OPEN_SECONDS
        while not answers(port):
            if time.monotonic() > deadline or not self._program.alive():
                raise BenchmarkError(f"Kafka does not start: {tail(log, 3)}")
            self._program.wait(0.2)

    def stop(self) -> None:
        """Stop it."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Its address."""
        return {"address": self._address}

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The broker."""
        return {"exchange": self._program.pid} if self._program else {}


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
        producer, topic, left = self._open_producer(), run.topic.rstrip("."), run.count
        while left > 0:
            for payload in payloads[:left]:
                try:
                    producer.produce(topic, payload)
                except BufferError:
                    producer.poll(0.1)
                    producer.produce(topic, payload)
            producer.poll(0)
            left -= len(payloads)
        if producer.flush(RUN_SECONDS):
            raise BenchmarkError("not everything was acknowledged")

    def pace(self, run: Run) -> None:
        """Produce at a rate, and wait for each acknowledgement."""
        producer, topic = self._open_producer(), run.topic.rstrip(".")
        self.ack_us = []
        for payload in paced(run):
            began = time.monotonic()
            producer.produce(topic, payload)
            producer.flush(RUN_SECONDS)
            self.ack_us.append((time.monotonic() - began) * 1e6)

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
