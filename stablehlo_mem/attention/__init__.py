"""Recognises softmax(scale Q Kᵀ + bias) V and its gradients by their mathematics, and calls the chips' kernels."""
