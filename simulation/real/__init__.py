"""Publishers and subscribers as processes of their own, and the judge of what they got.

worker      the process: one publisher or one subscriber
commands    what it is told while it works
journal     what it writes down, as it happens
timings     how long each `publish()` took
workers     all of them, seen by the process that has started them
judge       what was lost, doubled or reordered
naive       publisher and subscriber on bare ZeroMQ sockets, for comparison
relays      what these publish to
"""
