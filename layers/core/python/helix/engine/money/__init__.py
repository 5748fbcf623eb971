"""The money of a run: its reservations, the budgets that bind it, worst cases, and usage."""
