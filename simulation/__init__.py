"""RoQ under simulated and under real load; see docs/simulation.md."""
