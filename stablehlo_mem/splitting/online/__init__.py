"""Reductions in loops whose maximum is not known yet: streaming softmax, and what is made of it."""
