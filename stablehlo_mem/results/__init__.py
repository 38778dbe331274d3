"""What the public calls return: plain data. The planner and the api make it, reports print it."""
