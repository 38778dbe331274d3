"""The primitive that `jit` binds and its rules. Its jaxpr is planned when JAX lowers it."""
