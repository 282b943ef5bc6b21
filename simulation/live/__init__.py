"""Live runs: a scenario against a real cluster, with load from Spark tasks.

plan       who does what: clients, tasks, and what is refused (pure)
schedule   when each message is due, from the rates of a scenario (pure)
stamp      what each message bears: its time and number
streams    what a subscriber has got of a stream, and what is missing (pure)
verdict    lost, doubled, reordered: all tallies together (pure)
clocks     the clock of the driver, on every machine
words      what driver and tasks say to each other, over the queue of traces
windows    what a client did, second by second
senders, receivers, load     one task: its publishers, its subscribers, and both together
tasks      Spark: the session, the probe, the stage
faults     what goes wrong on purpose
driver     one run, from the first word to the last
run        all of it: `run(request, show)`
overhead   what generating load inside Spark costs
"""
