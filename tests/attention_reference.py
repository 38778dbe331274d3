"""Runs a module with calls of cuDNN's attention on the CPU: each call becomes the formula that it stands for.

The formula is that of cuDNN's kernels: scores and softmax in float32, probabilities and their gradient rounded to the
operands' type before they are multiplied. Shapes, layout, scale and mask come from the call's backend config.
"""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp

from stablehlo_mem.frontend.inline import inlined
from stablehlo_mem.ir.bindings import dtypes_by_name, ir, walk_operations
from stablehlo_mem.ir.builders import building

_NO_SCORE = -jnp.inf


def _scores(query: Any, key: Any, bias: Any, config: dict[str, Any]) -> Any:
    """Of batch, heads, queries, depth; grouped heads of keys are repeated."""
    key = jnp.repeat(key, query.shape[1] // key.shape[1], 1)
    scores = jnp.einsum("bnth,bnsh->bnts", query, key, preferred_element_type=jnp.float32) * config["fmha_scale"]
    scores = scores if bias is None else scores + bias.astype(jnp.float32)
    if config["mask_type"] == "CAUSAL":
        t, s = scores.shape[-2:]
        behind = jnp.arange(t)[:, None] - jnp.arange(s)
        window = config["sliding_window_length"] or s
        scores = jnp.where((behind >= 0) & (behind < window), scores, _NO_SCORE)
    else:
        assert config["mask_type"] == "NO_MASK"
    return scores


def _heads_first(operands: list[Any], config: dict[str, Any], name: str) -> list[Any]:
    batch = config[name]["lhs_batch_dimensions"]
    return [x.transpose(0, 2, 1, 3) for x in operands] if batch == ["0", "2"] else operands


def _forward(config: dict[str, Any], *operands: Any) -> Any:
    query, key, value = _heads_first(list(operands[:3]), config, "bmm1_dot_dimension_numbers")
    scores = _scores(query, key, operands[3] if len(operands) > 3 else None, config)
    value = jnp.repeat(value, query.shape[1] // value.shape[1], 1)
    p = jax.nn.softmax(scores, -1).astype(value.dtype)
    output = jnp.einsum("bnts,bnsh->bnth", p, value)
    return output, jax.nn.logsumexp(scores, -1), jnp.zeros(0, jnp.uint8)


def _backward(config: dict[str, Any], *operands: Any) -> Any:
    *bias, output = operands[5:]
    mine = [operands[0], operands[1], operands[2], operands[4], output]
    # The gradient's config names the dimensions of dO V^T.
    query, key, value, gradient, output = _heads_first(mine, config, "bmm2_grad_gemm2_dot_dimension_numbers")
    groups = query.shape[1] // key.shape[1]
    scores = _scores(query, key, bias[0] if bias else None, config)
    p = jnp.exp(scores - operands[3][..., None])
    wide = {"preferred_element_type": jnp.float32}
    keys, values = (jnp.repeat(x, groups, 1) for x in (key, value))
    dp = jnp.einsum("bnth,bnsh->bnts", gradient, values, **wide)
    delta = (gradient.astype(jnp.float32) * output.astype(jnp.float32)).sum(-1, keepdims=True)
    ds = (p * (dp - delta)).astype(query.dtype)
    dq = jnp.einsum("bnts,bnsh->bnth", ds, keys, **wide) * config["fmha_scale"]
    dk = jnp.einsum("bnts,bnth->bnsh", ds, query, **wide) * config["fmha_scale"]
    dv = jnp.einsum("bnts,bnth->bnsh", p.astype(query.dtype), gradient, **wide)
    grouped = lambda x: x.reshape(x.shape[0], -1, groups, *x.shape[2:]).sum(2)  # noqa: E731
    return *(x.astype(query.dtype) for x in (dq, grouped(dk), grouped(dv))), jnp.zeros(0, jnp.uint8)


def with_formulas(module: Any) -> int:
    """Replaces the calls of a module, in place; returns how many."""
    calls = [op for op in walk_operations(module.operation) if op.name == "stablehlo.custom_call"]
    dtypes = dtypes_by_name()
    for op in calls:
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        assert target.startswith("__cudnn$fmha")
        config = json.loads(ir.StringAttr(op.attributes["backend_config"]).value)["cudnn_fmha_backend_config"]
        formula = _backward if "Backward" in target else _forward
        specs = [jax.ShapeDtypeStruct(v.type.shape, dtypes[str(v.type.element_type)]) for v in op.operands]
        lowered = jax.jit(lambda *a, f=formula, c=config: f(c, *a)).lower(*specs).as_text()
        with building(op, op.location):
            results = inlined(lowered, list(op.operands))
        if len(op.results) == 2:
            results = [results[0], results[2]]
        for old, new in zip(op.results, results, strict=True):
            assert str(old.type) == str(new.type), (target, str(old.type), str(new.type))
            old.replace_all_uses_with(new)
        op.erase()
    return len(calls)
