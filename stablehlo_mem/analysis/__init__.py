"""What a program needs on a chip, nothing compiled: memory over its course, and time."""
