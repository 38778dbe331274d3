"""Attention: softmax(scale Q Kᵀ + bias) V and its gradients, recognised by their mathematics, and the chips' kernels."""
