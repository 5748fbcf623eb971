"""Reservations, budgets that bind a run, worst cases, and usage."""
