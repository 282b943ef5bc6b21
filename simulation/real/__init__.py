"""A real cluster on machines of its own, its clients, and the judge of what they got.

machines      network namespaces or loopback addresses, with disks and clocks
environment   where a cluster under load runs: loopback, or hosts whose links are limited
detour        a bad line for one of them
parts         the processes of a cluster, those that are started and those that they start
worker        the process: one publisher or one subscriber
commands      what it is told while it works
journal       what it writes down, as it happens
timings       how long each `publish()` took
workers       all of them, seen by the process that has started them
judge         what was lost, doubled or reordered
naive         publisher and subscriber on bare ZeroMQ sockets, for comparison
relays        what these publish to
waiting       for something, with a deadline
profile       load over time
under_load    cluster, workers and recording together, and the loop that drives them
record        what was seen: the statistics stream, and the program's own marks
measures      what follows from a record; pure
results       what a program prints and writes
shuffle       a policy that is never content
bar, display  how far it is, and the picture of `roq top`, on a terminal
"""
