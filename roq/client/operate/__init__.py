"""What operators see of a cluster and do to it; command line and console show it."""
