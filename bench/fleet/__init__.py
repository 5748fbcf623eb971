"""The parts of the replayed day of load."""
