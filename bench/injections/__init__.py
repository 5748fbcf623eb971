"""The parts of bench/prompt_injections.py. Only `agentdojo_cases` needs the package `agentdojo`."""
