"""Programs as they come in: read from what JAX exports, and brought into the normal form that the passes see."""
