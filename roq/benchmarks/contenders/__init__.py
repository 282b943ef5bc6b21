"""The contenders, one module each; `ALL` in the order in which people read the results."""
