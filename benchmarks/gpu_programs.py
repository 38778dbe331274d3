"""The programs of `gpu.py`: as a user writes them, as an expert does in chunks by hand, and with cuDNN's attention.

Sizes are those whose originals an H200 holds, some only just, and those that `roofline.py` counts without a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import suite_programs
from suite_programs import Spec, over_rows

Function = Callable[..., Any]
BF16, F32 = jnp.bfloat16, jnp.float32


@dataclasses.dataclass(frozen=True)
class Program:
    """A program at a size.

    Attributes:
        function: as a user writes it.
        specs: of its arguments.
        by_hand: the same in chunks of so many rows, queries or sequences; at float32 and the highest precision also
            what the results are compared with, for the original may be wrong.
        kernel: the same with the chip's own kernel called by hand, None where there is none.
        scale: the deviation of the normal numbers that arguments are drawn with.
        indices: of arguments that are indices, how many there are to choose from.
    """

    function: Function
    specs: Sequence[Any]
    by_hand: Callable[[int], Function] | None = None
    kernel: Function | None = None
    scale: float = 0.5
    indices: dict[int, int] = dataclasses.field(default_factory=dict)

    def arguments(self) -> list[Any]:
        """Drawn on the host, so that nothing but they is on the device; equal in every process."""
        rng = np.random.default_rng(0)
        leaves, tree = jax.tree.flatten(list(self.specs))
        return jax.tree.unflatten(tree, [self._drawn(i, rng, leaf) for i, leaf in enumerate(leaves)])

    def _drawn(self, index: int, rng: np.random.Generator, spec: Any) -> jax.Array:
        if jnp.issubdtype(spec.dtype, jnp.integer):
            return jax.device_put(rng.integers(0, self.indices.get(index, 60), spec.shape).astype(spec.dtype))
        return jax.device_put((np.float32(self.scale) * rng.standard_normal(spec.shape, np.float32)).astype(spec.dtype))


def attention(q, k, v, causal=False):
    """Softmax in float32 around matmuls of the operands' type; batch, position, head, feature."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / np.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def causal_attention(q, k, v):
    return attention(q, k, v, causal=True)


def attention_by_hand(batch: int, *, causal: bool = False) -> Function:
    """Queries in batches that are computed again in the backward pass."""

    def function(q, k, v):
        @jax.checkpoint
        def some(at):
            rows = jax.lax.dynamic_slice_in_dim(q, at, batch, 1)
            scores = jnp.einsum("bqhd,bkhd->bhqk", rows, k).astype(F32) / np.sqrt(q.shape[-1])
            if causal:
                position = at + jnp.arange(batch)
                scores = jnp.where(position[:, None] >= jnp.arange(k.shape[1]), scores, -1e30)
            return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)

        return jnp.moveaxis(jax.lax.map(some, jnp.arange(0, q.shape[1], batch)), 0, 1).reshape(q.shape)

    return function


def cudnn(causal: bool) -> Function:
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation="cudnn")


def gradient(function: Function) -> Function:
    return jax.grad(lambda *args: jnp.sin(function(*args).astype(F32)).sum(), (0, 1, 2))


def gpt_layer(x, weights, attend: Function):
    """A transformer's layer of 12 heads."""

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    b, t, d = x.shape
    q, k, v = jnp.moveaxis((norm(x) @ weights["qkv"]).reshape(b, t, 3, 12, d // 12), 2, 0)
    x = x + attend(q, k, v).reshape(b, t, d) @ weights["out"]
    return x + jax.nn.gelu(norm(x) @ weights["up"]) @ weights["down"]


def gpt_loss(weights, x, *, attend: Function = causal_attention, again: bool = False):
    def layer(x, w):
        return gpt_layer(x, w, attend), None

    body = jax.checkpoint(layer) if again else layer
    return (jax.lax.scan(body, x, weights)[0].astype(F32) ** 2).mean()


def gpt_by_hand(batch: int, attend: Function = causal_attention) -> Function:
    """So many sequences at a time, every layer computed again in the backward pass; gradients summed in float32."""

    def function(weights, x):
        def step(total, some):
            found = jax.grad(lambda w: gpt_loss(w, some, attend=attend, again=True))(weights)
            return jax.tree.map(lambda t, g: t + g.astype(F32) * (len(some) / len(x)), total, found), None

        zeros = jax.tree.map(lambda w: jnp.zeros(w.shape, F32), weights)
        total = jax.lax.scan(step, zeros, x.reshape(-1, batch, *x.shape[1:]))[0]
        return jax.tree.map(lambda t, w: t.astype(w.dtype), total, weights)

    return function


def heads(q, k, v):
    """`programs.attention`'s head, position, feature as `attention`'s."""
    return [jnp.moveaxis(x, 0, 1)[None] for x in (q, k, v)]


def heads_by_hand(batch: int) -> Function:
    return lambda q, k, v: jnp.moveaxis(attention_by_hand(batch)(*heads(q, k, v))[0], 0, 1)


def knn_by_hand(batch: int) -> Function:
    return suite_programs.queries_first(over_rows(suite_programs.knn_l2_row)(batch))


def _of(shape: tuple[int, ...], dtype: Any = F32) -> Spec:
    return Spec(shape, dtype)


_LONG = [_of((1, 16384, 8, 64), BF16)] * 3
_TWO = [_of((2, 8192, 8, 64), BF16)] * 3
_WEIGHTS = {"qkv": (12, 768, 2304), "out": (12, 768, 768), "up": (12, 768, 3072), "down": (12, 3072, 768)}
_GPT = [{name: _of(shape, BF16) for name, shape in _WEIGHTS.items()}, _of((8, 1024, 768), BF16)]


def _large(name: str, *sizes: int, by_hand: Callable[[int], Function], **given: Any) -> Program:
    return Program(programs.FUNCTIONS[name], programs.specs(name, *sizes), by_hand, **given)


_SUITE = "suite: "

PROGRAMS: dict[str, Program] = {
    "attention bf16": Program(attention, _LONG, attention_by_hand, cudnn(False), 1.0),
    "attention gradient bf16": Program(
        gradient(attention), _LONG, lambda n: gradient(attention_by_hand(n)), gradient(cudnn(False)), 1.0
    ),
    "causal gradient bf16": Program(
        gradient(causal_attention),
        _TWO,
        lambda n: gradient(attention_by_hand(n, causal=True)),
        gradient(cudnn(True)),
        1.0,
    ),
    "GPT gradient bf16": Program(
        jax.grad(gpt_loss), _GPT, gpt_by_hand, lambda w, x: gpt_by_hand(8, cudnn(True))(w, x), 0.02
    ),
    "attention": _large("attention", 8, 32768, 64, by_hand=heads_by_hand),
    "kernel x vector": _large("rbf", 100_000, 8, by_hand=over_rows(suite_programs.rbf_row)),
    "kernel gradient": Program(
        suite_programs.kernel_loss(programs.rbf),
        programs.specs("rbf", 65_536, 8),
        suite_programs.kernel_gradient_by_hand,
    ),
    "kNN": _large("knn", 100_000, 20_000, 32, by_hand=knn_by_hand),
    "kNN beyond 2^32": _large("knn", 100_000, 50_000, 32, by_hand=knn_by_hand),
    "MLP": _large("mlp", 131_072, 1024, 16_384, by_hand=over_rows(lambda x, a, b: programs.mlp(x, a, b))),
    "head": _large("head", 16_384, 2048, 131_072, by_hand=suite_programs.head_by_hand, indices={2: 131_072}, scale=0.1),
    **{
        f"{_SUITE}{name}": Program(case.function, case.specs(), case.by_hand, indices=case.indices)
        for name, case in suite_programs.CASES.items()
    },
    "k-means": _large("kmeans", 2_000_000, 1024, 64, by_hand=over_rows(suite_programs.kmeans_row)),
}


def groups(names: Sequence[str]) -> list[list[str]]:
    """What shares a process: the suite's, which are small; a large one has the device to itself."""
    small = [name for name in names if name.startswith(_SUITE)]
    return [*([small] if small else []), *([name] for name in names if name not in small)]
