"""pallas-attention: attention and its gradients become JAX's own Pallas flash attention, on TPU.

    %s = stablehlo.dot_general %q, %k ...  : tensor<8x16384x16384xf32>
    %p = softmax of %s, written out        : tensor<8x16384x16384xf32>     →   %o = custom_call @tpu_custom_call
    %o = stablehlo.dot_general %p, %v ...  : tensor<8x16384x64xf32>                (%q, %k, %v)

No scores exist in memory. The kernel keeps scores, their maxima and sums in float32, and multiplies matrices in the
precision that the program asks for: `numerics="reassociate"`. float32 programs keep float32.

Refuses, with a reason: biases and masks other than causal ones, masks of keys and of segments, float16, and what
`cudnn-attention` refuses for every kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.attention import pallas_flash
from stablehlo_mem.attention.layout import KernelShape, MaskKinds
from stablehlo_mem.frontend.inline import inlined
from stablehlo_mem.rewriting.attention_pass import AttentionPass


class PallasAttention(AttentionPass):
    """The pass."""

    name = "pallas-attention"
    library = "the flash attention kernel of JAX (Pallas)"
    kinds = frozenset({"tpu"})
    rows_first = False
    mask_kinds = MaskKinds(of_keys=True, segments=True)

    def unsupported(self, shape: KernelShape, *, training: bool) -> str:
        """See `pallas_flash.unsupported`."""
        return pallas_flash.unsupported(shape)

    def forward(self, shape: KernelShape, operands: Sequence[Any], *, training: bool) -> list[Any]:
        """The output, and the sum and maximum of each softmax."""
        return inlined(pallas_flash.forward_text(shape, training=training), operands)

    def backward(self, shape: KernelShape, operands: Sequence[Any], forward: Sequence[Any], gradient: Any) -> list[Any]:
        """dQ, dK and dV."""
        return inlined(pallas_flash.backward_text(shape), [*operands, *forward, gradient])

    def scratch_bytes(self, shape: KernelShape, *, training: bool) -> int:
        """See `pallas_flash.scratch_bytes`."""
        return pallas_flash.scratch_bytes(shape, training=training)
