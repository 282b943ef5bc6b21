"""A whole cluster on a virtual clock: the real machines, in processes that can fail.

world      the clock; everything random comes from its seed        simulation.world
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
"""
