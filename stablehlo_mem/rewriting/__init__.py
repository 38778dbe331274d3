"""What the passes share that put one form in the place of another."""
