"""What the public calls return: plain data."""
