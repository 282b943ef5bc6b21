"""Create a queue with pyzmq and bson alone, through the management interface.

roq up                        # in another terminal
python examples/create_queue_bson.py [tcp://127.0.0.1:5003]
"""

import sys

import bson
import zmq

CREATE_QUEUE, QUEUE_EXISTS = 2010, 2011

with zmq.Context() as context, context.socket(zmq.REQ) as socket:
    socket.linger = 0
    socket.connect(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5003")
    for command in (CREATE_QUEUE, QUEUE_EXISTS):
        socket.send(bson.encode({"CMD": command, "QName": "made-by-hand"}))
        answer = bson.decode(socket.recv())
        print(command, answer["RESULT"], answer["COMMENT"])
