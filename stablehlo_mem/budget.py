"""Budgets: byte strings, and the loop that keeps them."""
