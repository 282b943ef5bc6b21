"""A real cluster on machines of its own, its clients, and the judge of what they got.

    machines    network namespaces or loopback addresses, with disks and clocks
    detour      a bad line for one of them
    parts       the processes of a cluster, those that are started and those that they start
worker      the process: one publisher or one subscriber
commands    what it is told while it works
journal     what it writes down, as it happens
timings     how long each `publish()` took
workers     all of them, seen by the process that has started them
judge       what was lost, doubled or reordered
naive       publisher and subscriber on bare ZeroMQ sockets, for comparison
relays      what these publish to
"""
