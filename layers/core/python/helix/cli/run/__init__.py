"""Commands that run an agent, here or elsewhere, and follow the run to its end."""
