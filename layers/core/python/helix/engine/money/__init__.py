"""The money of a run: reservations, budgets that bind it, worst cases, and usage."""
