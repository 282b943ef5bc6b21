"""Read the statistics of a queue with pyzmq and bson alone: where is it, then what it says.

roq up                        # in another terminal
roq queue create orders
python examples/kpi_raw.py [tcp://127.0.0.1:5000] [orders]
"""

import sys

import bson
import zmq

LOCATE_QUEUE, EXCHANGE, QUEUE = 2000, 20, 23
address = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5000"
name = sys.argv[2] if len(sys.argv) > 2 else "orders"

with zmq.Context() as context, context.socket(zmq.REQ) as ask, context.socket(zmq.SUB) as listen:
    ask.linger = listen.linger = 0
    ask.connect(address)
    ask.send(bson.encode({"CMD": LOCATE_QUEUE, "QName": name}))
    located = bson.decode(ask.recv())
    if located["RESULT"] != 0:
        raise SystemExit(located["COMMENT"])
    listen.subscribe(b"")
    listen.connect(located["Stat_Monitor_host"])
    seen: set[int] = set()
    while not seen >= {EXCHANGE, QUEUE}:
        frames = [bson.decode(frame) for frame in listen.recv_multipart()]
        if frames[0]["CMD"] in {EXCHANGE, QUEUE}:
            seen.add(frames[0]["CMD"])
            print({key: value for frame in frames for key, value in frame.items() if key != "CMD"})
