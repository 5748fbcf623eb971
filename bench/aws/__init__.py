"""The parts of the benches that count calls to AWS."""
