"""cudnn-attention: attention and its gradients become cuDNN's fused kernels, on CUDA.

    %s = stablehlo.dot_general %q, %k ...  : tensor<1x8x16384x16384xbf16>
    %p = softmax of %s, written out        : tensor<1x8x16384x16384xf32>     →   %o = custom_call @"__cudnn$fmhaSoftmax"
    %o = stablehlo.dot_general %p, %v ...  : tensor<1x16384x8x64xbf16>               (%q, %k, %v)

No scores exist in memory. The calls are what JAX's own `jax.nn.dot_product_attention(implementation="cudnn")` lowers
to. They sum scores in float32 and round probabilities to the operands' type, so the error against float64 is that of
programs that do the same: `numerics="reassociate"`. Programs that keep more precision need "relaxed".

Refuses, with a reason: float32 operands, heads deeper than 128, probabilities that are changed after they were
normalised (dropout), a sum over something else than the keys, and scores or probabilities that are needed elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.attention import cudnn
from stablehlo_mem.attention.layout import KernelShape, MaskKinds
from stablehlo_mem.frontend.inline import inlined
from stablehlo_mem.rewriting.attention_pass import AttentionPass


class CudnnAttention(AttentionPass):
    """The pass."""

    name = "cudnn-attention"
    library = "the fused attention kernel of cuDNN"
    kinds = frozenset({"cuda"})
    mask_kinds = MaskKinds(windows=True)
    trains_in_loops = True
    """The statistics are one number for each query."""

    def unsupported(self, shape: KernelShape, *, training: bool) -> str:
        """As JAX checks it, without a device."""
        return cudnn.unsupported(shape, training=training)

    def forward(self, shape: KernelShape, operands: Sequence[Any], *, training: bool) -> list[Any]:
        """The output and the statistics of the softmax."""
        return inlined(cudnn.forward_text(shape, training=training), operands)

    def backward(self, shape: KernelShape, operands: Sequence[Any], forward: Sequence[Any], gradient: Any) -> list[Any]:
        """dQ, dK and dV."""
        output, statistics = forward
        return inlined(cudnn.backward_text(shape), [*operands, statistics, output, gradient])

    def scratch_bytes(self, shape: KernelShape, *, training: bool) -> int:
        """See `cudnn.scratch_bytes`."""
        return cudnn.scratch_bytes(shape, training=training)
