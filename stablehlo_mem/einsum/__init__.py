"""Chains of products and sums as one einsum, and differences between rows: matched, reordered, emitted."""
