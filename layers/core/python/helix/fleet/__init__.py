"""The fleet: agents as a production service, on worker processes or on the deployed functions."""
