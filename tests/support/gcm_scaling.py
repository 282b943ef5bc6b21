"""What a monitor asks of the configuration manager of a script, about a queue `q`."""

from __future__ import annotations

import msgspec
from gcm_script import Script

from roq.protocol import documents
from roq.protocol.control import Answer, Control, Elasticity, ElasticityRequest, ScaleIn, ScaleOut

OURS = {
    "AUTOSCALING_ROQ_POLICY": "balanced",
    "AUTOSCALING_ROQ_LATENCY": 0,
    "AUTOSCALING_ROQ_XCHANGE_MIN": 1,
    "AUTOSCALING_ROQ_XCHANGE_MAX": 4,
    "AUTOSCALING_ROQ_COOLDOWN": 3,
}


def send(script: Script, message: Control) -> int:
    return script.send_raw(documents.encode(message), port=5000)


def answer_of(script: Script, peer: int) -> Answer:
    (data,) = script.answers[peer]
    return documents.decode(data, Answer)  # type: ignore[arg-type]


def ask(script: Script, message: Control) -> Answer:
    peer = send(script, message)
    script.settle()
    return answer_of(script, peer)


def out(script: Script, transaction: str = "t1", **more: object) -> ScaleOut:
    queue_id = script.record("q").queue_id
    message = ScaleOut(id=7, queue="q", queue_id=queue_id, transaction=transaction, reason="load")
    return msgspec.structs.replace(message, **more)


def less(script: Script, number: int, **more: object) -> ScaleIn:
    queue_id = script.record("q").queue_id
    message = ScaleIn(id=8, queue="q", queue_id=queue_id, number=number, reason="idle")
    return msgspec.structs.replace(message, **more)


def rule(script: Script, **changed: object) -> None:
    given = {**OURS, **changed}
    answer = script.ask(2006, QName="q", AUTOSCALING_NAME="n", AUTOSCALING_ROQ=given)
    assert answer["RESULT"] == 0


def numbers(script: Script) -> list[int]:
    return [exchange.number for exchange in script.record("q").exchanges]


def wake(script: Script) -> None:
    """All hosts report, and the leader looks after what is left over."""
    for host in script.hosts.values():
        script.report(host)
    script.settle()
    script.pass_time(0.6)
    script.settle()


def heard(script: Script, *exchanges: tuple[int, int]) -> Elasticity:
    """The monitor of the queue tells which exchanges it hears of."""
    queue = script.machine.queues.demand("q")
    message = ElasticityRequest(
        id=4, queue="q", queue_id=queue.record.queue_id, epoch=queue.epoch(0),
        control=queue.monitor, exchanges=list(exchanges),
    )  # fmt: skip
    answer = ask(script, message)
    assert isinstance(answer, Elasticity)
    return answer
