"""Chaos: a real cluster under load, and a seeded plan of everything that can happen to it.

`python -m simulation.chaos` plays a plan and judges every message, and
`python -m simulation.chaos.report` measures how long each failure lasts. See docs/simulation.md.
"""
