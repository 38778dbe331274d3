"""JAX's own Pallas flash attention for TPU: which shapes it takes, what it needs, and the StableHLO it lowers to.

`jax.experimental.pallas.ops.tpu.flash_attention` is traced and lowered for TPU; no TPU is needed. It has no grouped
heads, so keys and values are repeated; it adds biases of all pairs only, so there are none; sequences are padded to
whole tiles, and the padding is masked out as segments are.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp

from stablehlo_mem.attention.layout import KernelShape
from stablehlo_mem.ir.bindings import dtypes_by_name, ir, parse_module, walk_operations
from stablehlo_mem.utils.quiet import quiet

LANES = 128
"""Elements of a tile's last dimension: sequences are padded to multiples, statistics are repeated along them."""
_BLOCKS = (512, 256, 128)
"""Rows and columns of scores that are computed at a time, the first that divides the sequence: 512 x 512 in float32
are 1 MiB of VMEM. JAX's default of 128 leaves the matrix units waiting; 512 is what MaxText's attention uses."""
_MOST_DEPTH = 256
"""Deeper heads have not been tried."""


def unsupported(shape: KernelShape) -> str:
    """Why the kernel does not take a shape, "" if it does."""
    if shape.dtype not in ("bf16", "f32"):
        return f"Pallas' flash attention is for bfloat16 and float32, and this is {shape.dtype}"
    if shape.value_depth != shape.depth:
        return "Pallas' flash attention wants queries and values of the same depth"
    if shape.depth > _MOST_DEPTH or (shape.depth > LANES and shape.depth % LANES):
        return (
            f"Pallas' flash attention takes heads of up to {LANES}, or {_MOST_DEPTH}, and these are {shape.depth} deep"
        )
    if shape.bias is not None:
        return "Pallas' flash attention has no bias and no mask other than causal ones and those of keys or segments"
    return ""


def padded(size: int) -> int:
    """A sequence's length in whole tiles."""
    return -(-size // LANES) * LANES


def _block(size: int) -> int:
    return next(block for block in _BLOCKS if size % block == 0)


def _blocks(shape: KernelShape) -> dict[str, int]:
    """The sizes of blocks, by the names of JAX's `BlockSizes`.

    What the backward kernel for queries reads of each query is repeated along `block_k_major_dq`: hence the least.
    """
    rows, columns = _block(padded(shape.queries)), _block(padded(shape.keys))
    forward = {"block_q": rows, "block_k_major": columns, "block_k": columns, "block_b": 1}
    of_keys = {"block_q_major_dkv": rows, "block_k_major_dkv": columns, "block_k_dkv": columns, "block_q_dkv": rows}
    return {**forward, **of_keys, "block_k_major_dq": LANES, "block_k_dq": LANES, "block_q_dq": rows}


@functools.lru_cache(maxsize=64)
def forward_text(shape: KernelShape, *, training: bool) -> str:
    """A module whose `main` maps queries, keys, values and mask of keys to the output.

    Args:
        training: it returns the sums and maxima of the softmax too.
    """
    return _lowered(functools.partial(_forward, shape, training), shape, *_operands(shape))


@functools.lru_cache(maxsize=64)
def backward_text(shape: KernelShape) -> str:
    """A module whose `main` maps the operands, the output, the statistics and the gradient to dQ, dK and dV."""
    statistics = jax.ShapeDtypeStruct((shape.batch, shape.heads, shape.queries), jnp.float32)
    output = shape.spec(shape.output)
    operands = [*_operands(shape), output, statistics, statistics, output]
    return _lowered(functools.partial(_backward, shape), shape, *operands)


def _operands(shape: KernelShape) -> list[Any]:
    operands = [*map(shape.spec, (shape.query, shape.key, shape.value))]
    numbers = [shape.keys] * shape.key_mask + [shape.queries, shape.keys] * shape.segments
    return operands + [jax.ShapeDtypeStruct((shape.batch, size), jnp.int32) for size in numbers]


def _forward(shape: KernelShape, training: bool, query: Any, key: Any, value: Any, *masks: Any) -> Any:
    flash = _flash()
    sizes = flash.BlockSizes(**_blocks(shape))
    operands = _in_tiles(shape, query, key, value)
    results = flash._flash_attention_impl(
        *operands,
        None,
        _segments(shape, *masks),
        training,
        shape.causal,
        shape.scale,
        sizes.block_b,
        sizes.block_q,
        sizes.block_k_major,
        sizes.block_k,
        False,
    )
    return tuple(x[:, :, : shape.queries] for x in (results if training else (results,)))


def _backward(shape: KernelShape, query: Any, key: Any, value: Any, *others: Any) -> Any:
    *masks, output, total, maximum, gradient = others
    flash = _flash()
    groups = shape.heads // shape.kv_heads
    operands = _in_tiles(shape, query, key, value)
    of_rows = [_padded_along(x, padded(shape.queries)) for x in (output, gradient)]
    # Padded queries have no gradient; their statistics are those of equal scores.
    statistics = [_padded_along(x, padded(shape.queries), 1.0) for x in (total, maximum)]
    residuals = (*operands, None, _segments(shape, *masks), of_rows[0], *statistics)
    sizes = flash.BlockSizes(**_blocks(shape))
    dq, dk, dv, *_ = flash._flash_attention_bwd(False, shape.causal, shape.scale, sizes, False, residuals, of_rows[1])
    dk, dv = (_summed_groups(x[:, :, : shape.keys], groups) for x in (dk, dv))
    return dq[:, :, : shape.queries], dk, dv


def _flash() -> Any:
    with quiet():  # Pallas imports the CUDA plugin too
        from jax.experimental.pallas.ops.tpu import flash_attention

    return flash_attention


def _in_tiles(shape: KernelShape, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """The operands with whole tiles along the sequences, each head of queries with keys and values of its own."""
    groups = shape.heads // shape.kv_heads
    if groups > 1:
        key, value = (jnp.repeat(x, groups, 1) for x in (key, value))
    keys, values = (_padded_along(x, padded(shape.keys)) for x in (key, value))
    return _padded_along(query, padded(shape.queries)), keys, values


def _padded_along(value: Any, size: int, fill: float = 0.0) -> Any:
    """A value padded to a size along dimension 2."""
    edges = [(0, size - n if d == 2 else 0) for d, n in enumerate(value.shape)]
    return value if size == value.shape[2] else jnp.pad(value, edges, constant_values=fill)


def _segments(shape: KernelShape, *masks: Any) -> Any:
    """The segments of queries and keys: keys that do not count are of one that no query has. None if all keys count."""
    missing = padded(shape.keys) - shape.keys
    if not masks and not missing:
        return None
    queries, keys = (jnp.ones((shape.batch, size), jnp.int32) for size in (shape.queries, shape.keys))
    other: Any = jnp.zeros((shape.batch, 1), jnp.int32)
    if shape.segments:
        queries, keys = masks[-2:]
        least, most = queries.min(1, keepdims=True), queries.max(1, keepdims=True)
        other = jnp.where(least > jnp.iinfo(jnp.int32).min, least - 1, most + 1)
    if shape.key_mask:
        keys = jnp.where(masks[0] != 0, keys, other)
    keys = jnp.concatenate([keys, jnp.broadcast_to(other, (shape.batch, missing))], 1) if missing else keys
    queries = jnp.pad(queries, [(0, 0), (0, padded(shape.queries) - shape.queries)])
    return _flash().SegmentIds(queries, keys)


def _summed_groups(value: Any, groups: int) -> Any:
    """The sums of the gradients of heads that share keys, in float32."""
    batch, heads, *rest = value.shape
    if groups == 1:
        return value
    grouped = value.reshape(batch, heads // groups, groups, *rest)
    return grouped.astype(jnp.float32).sum(2).astype(value.dtype)


def _lowered(function: Any, shape: KernelShape, *specs: Any) -> str:
    """Lowers for TPU as `jax.export` does: in the form that later versions of XLA read."""
    with jax.enable_x64(False), jax.default_matmul_precision(shape.precision):
        text = jax.export.export(jax.jit(function), platforms=["tpu"])(*specs).mlir_module()
    return _with_costs(text, shape)


def _with_costs(text: str, shape: KernelShape) -> str:
    """States the FLOPs of kernels that do not: JAX's backward kernels. One makes dK and dV, the other dQ."""
    module = parse_module(text)
    with module.context:
        for op in walk_operations(module.operation):
            if op.name != "stablehlo.custom_call" or "backend_config" not in op.attributes:
                continue
            config = json.loads(ir.StringAttr(op.attributes["backend_config"]).value)
            call = config.get("custom_call_config", {})
            matmuls = 4 if len(op.results) == 2 else 3
            flops = 2 * matmuls * shape.pairs * shape.depth
            nbytes = sum(_bytes(v.type) for v in (*op.operands, *op.results))
            call.setdefault("cost_estimate", {"flops": flops, "transcendentals": shape.pairs, "bytes_accessed": nbytes})
            op.attributes["backend_config"] = ir.StringAttr.get(json.dumps(config))
    return str(module)


def _bytes(mlir_type: Any) -> int:
    count = 1
    for size in mlir_type.shape:
        count *= size
    return count * dtypes_by_name()[str(mlir_type.element_type)].itemsize


def scratch_bytes(shape: KernelShape, *, training: bool) -> int:
    """Bytes that the kernels need beside operands and results.

    For a gradient, each of the softmax's two statistics and the sum of dO ∘ O takes `LANES` float32 numbers a query.
    Padded and repeated copies of operands come on top.
    """
    rows = shape.batch * shape.heads * padded(shape.queries)
    columns = shape.batch * shape.heads * padded(shape.keys)
    itemsize = dtypes_by_name()[shape.dtype].itemsize
    copies = rows * (padded(shape.queries) != shape.queries)
    copies += 2 * columns * (padded(shape.keys) != shape.keys or shape.heads != shape.kv_heads)
    return 4 * LANES * rows * (3 if training else 0) + copies * shape.depth * itemsize
