"""`helix fleet`: agents as a service, their limits, budgets, health and history."""
