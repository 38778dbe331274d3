"""Chooses the steps of a plan: searches by the static profile, and the loop that compiles what they find.

The api and `jaxpr.plan_at_lowering` call `budget_loop.keep_budget`.
"""
