"""What a cluster of any size would do: RoQ's own policies, driven by a model of load and delays.

    parameters  delays, costs and sizes: everything that is assumed
    case        one run: scenario, hosts, queues, seed, and what differs from the defaults
    timeline      a load that is constant piece by piece, and its integral
    load        who publishes when, from a scenario
    exchange    one exchange: who publishes there, and what it carries
    host        hosts: slots, processor, and where the next exchange goes
    views       a queue as its policy is shown it
    waiting     until when a policy that has nothing to do need not be asked
    population  exchanges and publishers of a queue, and the sums that follow
    flights     moves that are under way
    queue       one queue: rounds, moves, growth, shrinking
    requests    what it asks of the configuration manager
    losses      exchanges that die
    account     what is counted meanwhile; tally: what has happened
    cell        a part of a cluster with its queues, and the clock
    outcome     what came out, and how parts are put together
    thresholds  other thresholds for policies
    grid        which runs a sweep consists of
    windows     how a run goes, window by window
    work        tasks, done here, by processes or on Spark
    order       what people ask for: one run, or many
    run         one run, kept in a folder; record: the documents in it
    sweep       many runs; table: what came out, as table and Parquet; heatmap: as pictures
    calibration the model beside what was measured on real processes

The policies are those of `roq.policy`, placement and assignment as well; operations that fail and
are tried again are `roq.monitor.scaling`; waits are the constants of `roq.monitor`. Nothing of them
is written anew here. `roq sim run --model` and `roq sim sweep` play it.
"""
