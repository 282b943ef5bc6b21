"""Live runs: a scenario against a real cluster, with load from Spark tasks.

plan       who does what: clients, tasks, and what is refused (pure)
schedule   when each message is due, from the rates of a scenario (pure)
stamp      what each message bears: its time and number
verdict    lost, doubled, reordered: all tallies together (pure)
clocks     the clock of the driver, on every machine
messages   what driver and tasks say to each other, over a queue of their own
windows    what a client did, second by second
senders, receivers, load     one task: its publishers, its subscribers, and both together
tasks      Spark: the session, the probe, the stage
faults     what goes wrong on purpose
driver     the talk with all tasks
conductor  the load, from the first message to the tallies
run        all of it: `run(request, show)`
overhead   what generating load inside Spark costs
"""
