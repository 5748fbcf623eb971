"""The calls of a step: tools, sub-agents, and who executes which."""
