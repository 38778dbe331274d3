"""cuDNN's fused attention: which shapes it takes, what it costs, and the StableHLO that JAX lowers it to.

JAX's own primitives are traced and lowered for CUDA here, so that the calls have the backend config that XLA wants.
JAX asks the attached GPU what cuDNN can do; without one it is told.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from stablehlo_mem.attention.layout import KernelShape
from stablehlo_mem.ir.bindings import cudnn_attention

_CUDNN_VERSION = 90800
"""The cuDNN that JAX 0.10 is built with has at least this version (9.8); the topologies of `gpu_configs` say so too."""


def unsupported(shape: KernelShape, *, training: bool) -> str:
    """Why cuDNN has no kernel for a shape, "" if it has one.

    An Ampere GPU is assumed: heads may be 128 deep. Hopper's may be 256.
    """
    if shape.dtype not in ("bf16", "f16"):
        return f"cuDNN's fused attention multiplies bfloat16 and float16, and this is {shape.dtype}"
    if shape.value_depth != shape.depth:
        return "cuDNN's fused attention wants queries and values of the same depth"
    query, key, value = map(shape.spec, (shape.query, shape.key, shape.value))
    fa = cudnn_attention()
    layout = _layout(shape)
    try:
        with fa.told_capability((8, 0)):
            fa.module.check_is_flash_attention(
                query, key, value, layout.value, _CUDNN_VERSION, shape.bias is not None, training
            )
    except NotImplementedError as error:
        return f"cuDNN: {error}"
    return ""


def _layout(shape: KernelShape) -> Any:
    layouts = cudnn_attention().module.AttentionLayout
    return layouts.BTNH if shape.rows_first else layouts.BNTH


def _parameters(shape: KernelShape) -> dict[str, Any]:
    masks = cudnn_attention().module.MaskType
    return {
        "scale": shape.scale,
        "seed": 0,
        "dropout_rate": 0.0,
        "variadic_args": (shape.bias is not None, False),
        "mask_type": masks.CAUSAL if shape.causal else masks.NO_MASK,
        "layout": _layout(shape).value,
        "sliding_window_length": shape.window,
    }


@functools.lru_cache(maxsize=64)
def forward_text(shape: KernelShape, *, training: bool) -> str:
    """A module whose `main` maps queries, keys, values and bias to the output.

    Args:
        training: it returns the statistics of the softmax too.
    """

    def forward(query: Any, key: Any, value: Any, *bias: Any) -> Any:
        none = jnp.zeros(0, query.dtype)
        operands = (query, key, value, *(bias or (none,)), *[none] * 6)
        primitive = cudnn_attention().module._dot_product_attention_fwd_p
        return primitive.bind(*operands, **_parameters(shape), is_training=training)

    return _lowered(forward, *_operands(shape))


@functools.lru_cache(maxsize=64)
def backward_text(shape: KernelShape) -> str:
    """A module whose `main` maps the operands, the statistics, the output and its gradient to dQ, dK and dV."""

    def backward(query: Any, key: Any, value: Any, *others: Any) -> Any:
        *bias, statistics, output, gradient = others
        none = jnp.zeros(0, query.dtype)
        operands = (query, key, value, *(bias or (none,)), *[none] * 6, statistics, output, gradient)
        return cudnn_attention().module._dot_product_attention_bwd_p.bind(*operands, **_parameters(shape))

    statistics = jax.ShapeDtypeStruct((shape.batch, shape.heads, shape.queries), jnp.float32)
    output = shape.spec(shape.output)
    return _lowered(backward, *_operands(shape), statistics, output, output)


def _operands(shape: KernelShape) -> list[Any]:
    shapes = [shape.query, shape.key, shape.value, *([shape.bias_shape] if shape.bias_shape is not None else [])]
    return [*map(shape.spec, shapes)]


def _lowered(function: Any, *specs: Any) -> str:
    return jax.jit(function).trace(*specs).lower(lowering_platforms=("cuda",)).as_text()


def scratch_bytes(shape: KernelShape, *, training: bool) -> int:
    """Bytes that the kernels need beside operands and results: statistics, and dQ, which is summed up in float32.

    The workspace that cuDNN takes at run time is in no report of a compiler without a device. Its backward kernel adds
    up dQ in float32 and keeps a sum of dO ∘ O for each query (FlashAttention-2, algorithm 2).
    """
    return 4 * shape.row_count * (2 + shape.depth) if training else 0
