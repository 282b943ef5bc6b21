"""The only place with loops, clocks, signals, threads, sockets and child processes.

`reactor` is the one loop of every daemon but the exchange, and of the client's background thread;
`sockets` makes and binds ZeroMQ sockets with the options that RoQ needs; `rpc` carries BSON
documents over them; `process`, `structured_logs` and `config` do what they are called.
"""
