"""Chaos: a real cluster under load, and a seeded plan of everything that can happen to it.

`python -m roq.simulation.experiments.chaos` plays a plan and judges every message, and
`python -m roq.simulation.experiments.chaos.report` measures how long each failure lasts. See
docs/simulation.md.
"""
