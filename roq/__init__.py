"""RoQ: an elastic queue cluster."""
