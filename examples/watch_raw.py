"""Read the configuration broadcast with pyzmq and bson alone, as any program can.

roq up                        # in another terminal
python examples/watch_raw.py [tcp://127.0.0.1:5005]
"""

import sys

import bson
import zmq

with zmq.Context() as context, context.socket(zmq.SUB) as socket:
    socket.linger = 0
    socket.subscribe(b"")
    socket.connect(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5005")
    head, queues, hosts = map(bson.decode, socket.recv_multipart())
    print("command", head["CMD"], "version", head["Version"])
    print("queues", [(queue["Name"], queue["Host"], queue["State"]) for queue in queues["Queues"]])
    print("hosts", hosts["Hosts"])
