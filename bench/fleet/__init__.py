"""What the replayed day of load is made of."""
