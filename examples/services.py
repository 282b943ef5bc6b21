"""A service and who asks it, in one program: python examples/services.py [ADDRESS]."""

from __future__ import annotations

import os
import sys

import msgspec

import roq


class Order(msgspec.Struct):
    """What is asked for."""

    number: int
    price: int


class Invoice(msgspec.Struct):
    """What is answered."""

    order: int
    total: int


create = roq.endpoint("billing.create", request=Order, response=Invoice, idempotent=True)


def main() -> None:
    """Ask ten times."""
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")
    with roq.connect(address) as cluster:
        cluster.create_queue("work", exists_ok=True)
        service = cluster.service("billing", queue="work")

        @service.handler(create)
        def create_invoice(order: Order, _context: roq.RequestContext) -> Invoice:
            return Invoice(order.number, order.price * 121 // 100)

        with service, cluster.requester("work") as requester:
            pendings = [requester.request(create, Order(n, 100 * n), within=20) for n in range(10)]
            for pending in pendings:
                print(pending.id, pending.result(timeout=20))


if __name__ == "__main__":
    main()
