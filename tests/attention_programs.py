"""Attention as people write it, and programs that only look like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

S = jax.ShapeDtypeStruct
B, T, N, H = 2, 256, 4, 64
Program = tuple[Callable[..., Any], list[Any]]


def _qkv(dtype: Any, *shape: int) -> list[Any]:
    return [S(shape, dtype)] * 3


def einsum_f32_softmax(dtype: Any, t: int = T) -> Program:
    """Batch, queries, heads, depth; scores divided in float32."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / 8
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def scaled_before_additive_mask(dtype: Any, t: int = T) -> Program:
    """Batch, heads, queries, depth; queries are scaled before, and -1e9 is added to masked scores."""

    def f(q, k, v):
        mask = jnp.where(jnp.arange(t)[:, None] >= jnp.arange(t)[None], 0.0, -1e9)
        s = jnp.einsum("bhqd,bhkd->bhqk", q * 0.125, k, preferred_element_type=jnp.float32) + mask
        return jax.nn.softmax(s, axis=-1).astype(q.dtype) @ v

    return f, _qkv(dtype, B, N, t, H)


def keys_first(dtype: Any, t: int = T) -> Program:
    """Scores have the keys before the queries, and softmax is along dimension -2."""

    def f(q, k, v):
        s = jnp.einsum("bkhd,bqhd->bhkq", k, q, preferred_element_type=jnp.float32) * 0.125
        p = jax.nn.softmax(s, axis=-2).astype(v.dtype)
        return jnp.einsum("bhkq,bkhd->bhqd", p, v)

    return f, _qkv(dtype, B, t, N, H)


def jax_nn_causal(dtype: Any, t: int = T) -> Program:
    """JAX's own, in its XLA form, with a causal mask."""
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="xla"), _qkv(
        dtype, B, t, N, H
    )


def jax_nn_grouped(dtype: Any, t: int = T) -> Program:
    """JAX's own with two heads of keys for four of queries."""
    specs = [S((B, t, N, H), dtype), *[S((B, t, N // 2, H), dtype)] * 2]
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, implementation="xla"), specs


def flax_linen(dtype: Any, t: int = T) -> Program:
    """As in flax.linen.dot_product_attention: softmax in the operands' type, the least number where masked."""

    def f(q, k, v):
        q = q / jnp.sqrt(q.shape[-1]).astype(q.dtype)
        s = jnp.einsum("...qhd,...khd->...hqk", q, k)
        mask = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
        s = jnp.where(mask, s, jnp.finfo(s.dtype).min)
        return jnp.einsum("...hqk,...khd->...qhd", jax.nn.softmax(s).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def haiku(dtype: Any, t: int = T) -> Program:
    """As in Haiku: einsum with ellipsis, -1e30 where a triangle is zero, softmax of float32."""

    def f(q, k, v):
        s = jnp.einsum("...thd,...Thd->...htT", q, k).astype(jnp.float32)
        s *= 1 / np.sqrt(q.shape[-1]).astype(np.float32)
        mask = jnp.tril(jnp.ones((1, 1, q.shape[1], q.shape[1])))
        s = jnp.where(mask, s, -1e30)
        return jnp.einsum("...htT,...Thd->...thd", jax.nn.softmax(s).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def tutorial(dtype: Any, t: int = T) -> Program:
    """As in many tutorials: the scores are divided by `jnp.sqrt` of the depth, which is traced."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / jnp.sqrt(q.shape[-1])
        s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, jnp.finfo(jnp.float32).min)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def padded_multi_query(dtype: Any, t: int = T) -> Program:
    """One head of keys for all queries, of which each example has so many."""

    def f(q, k, v, lengths):
        s = jnp.einsum("bqhd,bkd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        s = jnp.where(jnp.arange(k.shape[1])[None, None, None] < lengths[:, None, None, None], s, -jnp.inf)
        return jnp.einsum("bhqk,bkd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, [S((B, t, N, H), dtype), S((B, t, H), dtype), S((B, t, H), dtype), S((B,), jnp.int32)]


def by_hand(dtype: Any, t: int = T) -> Program:
    """The softmax written out; the sum divides the output; a constant triangle selects; two dimensions only."""
    triangle = np.tril(np.ones((t, t), bool))

    def f(q, k, v):
        s = jnp.where(triangle, (q @ k.T).astype(jnp.float32) * 0.125, -jnp.inf)
        e = jnp.exp(s - s.max(-1, keepdims=True))
        p = e / e.sum(-1, keepdims=True)
        return p.astype(v.dtype) @ v

    return f, _qkv(dtype, t, H)


def log_sum_exp(dtype: Any, t: int = T) -> Program:
    """exp(s - logsumexp(s)), and a bias for all examples."""

    def f(q, k, v, bias):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125 + bias.astype(jnp.float32)
        p = jnp.exp(s - jax.nn.logsumexp(s, -1, keepdims=True))
        return jnp.einsum("bhqk,bkhd->bqhd", p.astype(v.dtype), v)

    return f, [*_qkv(dtype, B, t, N, H), S((N, t, t), dtype)]


def projected_bias(dtype: Any, t: int = T) -> Program:
    """A bias for each head is projected from features of pairs, as in AlphaFold."""

    def f(q, k, v, pairs, weights):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * 0.125
        s = s + (pairs @ weights).transpose(2, 0, 1)[None].astype(jnp.float32)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(v.dtype), v)

    return f, [*_qkv(dtype, B, t, N, H), S((t, t, 6), dtype), S((6, N), dtype)]


def divided_after(dtype: Any, t: int = T) -> Program:
    """The sum of the exponentials divides what was summed over the keys."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        e = jnp.exp(s - s.max(-1, keepdims=True))
        o = jnp.einsum("bhqk,bkhd->bhqd", e.astype(v.dtype), v, preferred_element_type=jnp.float32)
        return (o / e.sum(-1, keepdims=True)).astype(q.dtype)

    return f, _qkv(dtype, B, t, N, H)


def where_minus_1e9(dtype: Any, t: int = T) -> Program:
    """Python's number of masked scores becomes one of the scores' type: bfloat16 rounds it."""

    def f(q, k, v):
        s = q @ k.swapaxes(-1, -2) * jnp.power(q.shape[-1], -0.5)
        return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t))) == 1, s, -1e9), -1) @ v

    return f, _qkv(dtype, B, N, t, H)


def minus_1e10(dtype: Any, t: int = T) -> Program:
    """1 less a triangle, times a number, is subtracted from the scores."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
        s = s - 1e10 * (1 - jnp.tril(jnp.ones((1, 1, t, t), s.dtype)))
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)

    return f, _qkv(dtype, B, t, N, H)


def softmax_where(dtype: Any, t: int = T) -> Program:
    """The mask is given to `jax.nn.softmax`, which sets probabilities to zero too."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 8
        w = jax.nn.softmax(s, -1, where=jnp.tri(t, dtype=bool)[None, None])
        return jnp.einsum("bhqk,bkhd->bqhd", w.astype(v.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def packed_documents(dtype: Any, t: int = T) -> Program:
    """Causal, and only keys of the query's own document; the first example's last keys are padding."""

    def f(q, k, v, lengths):
        numbers = (jnp.arange(t) >= lengths[:, None] // 2).astype(jnp.int32)
        padding = jnp.arange(t) < lengths[:, None] + 50
        kept = (numbers[:, :, None] == numbers[:, None, :]) & jnp.tri(t, dtype=bool) & padding[:, None]
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 8
        s = jnp.where(kept[:, None], s, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, [*_qkv(dtype, B, t, N, H), jax.ShapeDtypeStruct((B,), jnp.int32)]


def mask_of_examples(dtype: Any, t: int = T) -> Program:
    """As `flax.linen.make_attention_mask`: a product of what queries and keys count, combined with a triangle."""

    def f(q, k, v, lengths):
        counts = jnp.arange(t) < lengths[:, None]
        pairs = jnp.multiply(counts[:, :, None], counts[:, None, :]).astype(jnp.float32)
        kept = jnp.logical_and(pairs, jnp.tri(t))[:, None]
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(H).astype(dtype)
        s = jnp.where(kept, s, jnp.finfo(dtype).min)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v)

    return f, [*_qkv(dtype, B, t, N, H), jax.ShapeDtypeStruct((B,), jnp.int32)]


def hugging_face(dtype: Any, t: int = T) -> Program:
    """As their models for Flax: an added mask of examples and a triangle, compared twice; a mask of heads, all ones."""

    def f(q, k, v, lengths):
        examples = (jnp.arange(t) < lengths[:, None]).astype(jnp.int32)
        examples = jax.lax.optimization_barrier(examples)
        kept = jnp.broadcast_to(jnp.tril(jnp.ones((1, 1, t, t), bool)), (B, 1, t, t))
        kept = jnp.logical_and(jnp.broadcast_to(examples[:, None, None], kept.shape), kept)
        fill = jnp.full(kept.shape, jnp.finfo(dtype).min).astype(dtype)
        bias = jax.lax.select(kept > 0, jnp.full(kept.shape, 0.0).astype(dtype), fill)
        s = jnp.einsum("...qhd,...khd->...hqk", q / jnp.sqrt(H).astype(dtype), k) + bias
        w = jnp.einsum("...hqk,h->...hqk", jax.nn.softmax(s).astype(dtype), jnp.ones((2, N), jnp.int32)[0])
        return jnp.einsum("...hqk,...khd->...qhd", w.astype(dtype), v)

    return f, [*_qkv(dtype, B, t, N, H), jax.ShapeDtypeStruct((B,), jnp.int32)]


def window(dtype: Any, t: int = T) -> Program:
    """The last 100 keys up to the query's own, as Mistral's and Gemma's models have it."""

    def f(q, k, v):
        behind = jnp.arange(t)[:, None] - jnp.arange(t)
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 8
        s = jnp.where((behind >= 0) & (behind < 100), s, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


SPELLINGS = {
    f.__name__: f
    for f in (
        einsum_f32_softmax,
        scaled_before_additive_mask,
        keys_first,
        jax_nn_causal,
        jax_nn_grouped,
        flax_linen,
        haiku,
        tutorial,
        padded_multi_query,
        by_hand,
        log_sum_exp,
        projected_bias,
        where_minus_1e9,
        minus_1e10,
        softmax_where,
        packed_documents,
        mask_of_examples,
        hugging_face,
        window,
    )
}
FORWARD_ONLY = {"divided_after": divided_after}


def gradient(program: Program) -> Program:
    """The gradients of a sum of sines, with regard to queries, keys and values."""
    f, specs = program
    return jax.grad(lambda *a: jnp.sin(f(*a).astype(jnp.float32)).sum(), (0, 1, 2)), specs


def other_axis(dtype: Any, t: int = T) -> Program:
    """The softmax is over the queries."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -2).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def bias_of_scores(dtype: Any, t: int = T) -> Program:
    """The bias is computed from the scores."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        s = s + jnp.roll(s, 1, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    return f, _qkv(dtype, B, t, N, H)


def dropout(dtype: Any, t: int = T) -> Program:
    """Some probabilities are dropped."""

    def f(q, k, v, keep):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        p = jnp.where(keep, jax.nn.softmax(s, -1) / 0.9, 0.0)
        return jnp.einsum("bhqk,bkhd->bqhd", p.astype(q.dtype), v)

    return f, [*_qkv(dtype, B, t, N, H), S((B, N, t, t), jnp.bool_)]


def returned_scores(dtype: Any, t: int = T) -> Program:
    """The probabilities are returned too."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        p = jax.nn.softmax(s, -1).astype(q.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v), p

    return f, _qkv(dtype, B, t, N, H)


NEAR_MISSES = {
    "other_axis": (other_axis, "not-normalised"),
    "bias_of_scores": (bias_of_scores, "depends-on-scores"),
    "dropout": (dropout, "dropout"),
    "returned_scores": (returned_scores, "scores-needed"),
}
