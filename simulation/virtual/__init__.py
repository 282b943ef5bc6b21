"""The virtual world: the real machines on a virtual clock, in processes that can fail.

world      the clock; everything random comes from its seed
network    connections that delay, stall, break and lose
wires      machines, connections, partitions                       wires
process    a loop with a clock of its own; pauses, crashes         process
sockets    ZeroMQ as far as daemons see it                         sockets
ensemble   ZooKeeper: slow, away, empty, sessions that end         ensemble
managers, hosts, children, clients: the shells around the machines
cluster    all of it, with a history of what was published and received
console    where people ask for changes, some of them again and again
policies   one that is never content: publishers are moved all the time
troubles   what goes wrong, drawn from the seed
watch      what must hold while it happens; lookout: what stands still says why
promises   what must hold all the same
trial      one run from beginning to end

queue      one queue without managers, for exact situations: actors, and a monitor that is told what
           to do; relocation_case, relocation_trial, dispatcher, queue_faults: many moves in it
"""
