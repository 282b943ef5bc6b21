"""The programs: each starts what it needs, prints tables, and writes `simulation/results`."""
