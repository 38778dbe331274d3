"""Plans proved by running them."""
