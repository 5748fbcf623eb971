"""Sends the model calls that wait for a provider's batch, and collects their answers."""
