"""`jit` inside JAX: a primitive whose jaxpr is planned when it is lowered."""
