"""MLIR: the bindings' façade, builders and the integer graph."""
