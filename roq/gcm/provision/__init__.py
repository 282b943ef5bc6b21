"""Hosts that a provider makes and takes away."""
