"""How a publisher or subscriber stands, and who is told."""
