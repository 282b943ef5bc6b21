"""RoQ under simulated and under real load; see docs/simulation.md.

experiments   the programs: `python -m roq.simulation.experiments.NAME`
forecast      clusters of any size, worked out: the real policies under modelled load
lab           load out of Spark tasks, traces, what is kept of a run, and its report
scenario      load over time, and all else that a scenario file says
virtual       the real machines on a virtual clock, and everything that fails
real          real processes: where they run, what drives, records and judges them
"""
