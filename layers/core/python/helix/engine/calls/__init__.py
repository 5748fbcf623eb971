"""The calls of a step: tools, sub-agents, and which worker executes which call."""
