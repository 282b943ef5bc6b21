"""Processes of a cluster on a virtual clock: the real machines in shells of the simulation."""
