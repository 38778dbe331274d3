"""Which steps to take: searches by the static profile, and the loop that asks the compiler."""
