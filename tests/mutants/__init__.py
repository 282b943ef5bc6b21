"""Mistakes made by hand in the data plane, and whether the tests notice them."""
