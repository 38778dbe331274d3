"""Checks plans by running them: `Plan.check` and the command line's --check call it."""
