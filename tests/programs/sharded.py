"""Programs over eight devices, planned and run: `python -m tests.programs.sharded` in a process that has so many.

Prints, as JSON, what came out of each.
"""

from __future__ import annotations

import dataclasses
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import export
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.frontend.program import as_exported, ingest
from stablehlo_mem.ir.bindings import walk_operations
from stablehlo_mem.jaxpr.plan_at_lowering import recording
from stablehlo_mem.passes.cudnn_attention import CudnnAttention
from tests.attention_reference import with_formulas
from tests.support import UNOPTIMISED, in_f64, memory_of, normal, normals, rewrite, yardstick

DEVICES = 8
_CALL = "stablehlo.custom_call"
HEADS = PartitionSpec("x")
SEQUENCE = PartitionSpec(None, "x")
WHOLE = PartitionSpec()


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def constrained_attention(q, k, v):
    scores = jax.lax.with_sharding_constraint(jnp.einsum("hqd,hkd->hqk", q, k), HEADS)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def gathered_attention(q, k, v):
    k, v = (jax.lax.all_gather(a, "x", axis=1, tiled=True) for a in (k, v))
    return attention(q, k, v)


def causal_attention(q, k, v):
    scores = jnp.einsum("qd,kd->qk", q, k)
    return jax.nn.softmax(jnp.where(jnp.tri(len(q), dtype=bool), scores, -jnp.inf), -1) @ v


def kernel_matvec(x, y, v):
    return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def nearest(q, x):
    return jax.lax.top_k(-((q[:, None] - x[None]) ** 2).sum(-1), 10)[0]


def experts(w1, w2, gate, x):
    """Every expert sees every token."""
    hidden = jax.nn.relu(jnp.einsum("td,edf->etf", x, w1))
    return jnp.einsum("etf,efd,te->td", hidden, w2, jax.nn.softmax(x @ gate, -1))


def scanned_step(w, x):
    def loss(w):
        return (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0] ** 2).mean()

    return w - 0.1 * jax.grad(loss)(w)


def train_step(w1, w2, x, y):
    def loss(w1, w2):
        return ((jnp.tanh(x @ w1) @ w2 - y) ** 2).mean()

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


def mapped_step(w1, w2, x, y):
    """The same with the sums over devices written out."""
    return jax.tree.map(lambda w: jax.lax.pmean(w, "x"), train_step(w1, w2, x, y))


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:DEVICES]), ("x",))


def row_losses(w1, w2, x, y):
    return ((jnp.tanh(x @ w1) @ w2 - y) ** 2).mean(1)


def gradient_of_mapped(w1, w2, x, y):
    """The gradient of a `shard_map` is another one, to which the first one hands what it needs."""
    mapped = jax.shard_map(row_losses, mesh=_mesh(), in_specs=_BATCH, out_specs=ROWS)
    return jax.grad(lambda w1, w2: mapped(w1, w2, x, y).mean(), (0, 1))(w1, w2)


def gradient_of_rows(w1, w2, x, y):
    return jax.grad(lambda w1, w2: row_losses(w1, w2, x, y).mean(), (0, 1))(w1, w2)


def ring_attention(q, k, v):
    """Keys and values go round the devices; each adds what its queries see of them, with a running maximum."""

    def step(carry, _):
        k, v, out, most, total = carry
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1])
        new = jnp.maximum(most, scores.max(-1))
        weights, scale = jnp.exp(scores - new[..., None]), jnp.exp(most - new)
        out = out * scale[..., None] + jnp.einsum("hqk,hkd->hqd", weights, v)
        k, v = (jax.lax.ppermute(a, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)]) for a in (k, v))
        return (k, v, out, new, total * scale + weights.sum(-1)), None

    total = 0 * q[..., 0]
    (_, _, out, _, total), _ = jax.lax.scan(step, (k, v, 0 * q, total - 1e30, total), length=DEVICES)
    return out / total[..., None]


def gradient_of_ring(q, k, v):
    mapped = jax.shard_map(ring_attention, mesh=_mesh(), in_specs=(SEQUENCE,) * 3, out_specs=SEQUENCE)
    return jax.grad(lambda *given: (mapped(*given) ** 2).sum(), (0, 1, 2))(q, k, v)


def gradient_of_attention(q, k, v):
    scaled = np.sqrt(q.shape[-1])
    return jax.grad(lambda q, k, v: (attention(q / scaled, k, v) ** 2).sum(), (0, 1, 2))(q, k, v)


def mapped_layers(w, x):
    """Each device has its part of the weights, and gathers those of one layer at a time."""

    def layer(x, w):
        return x + jnp.tanh(x @ jax.lax.all_gather(w, "x", axis=0, tiled=True)), None

    return jax.lax.psum((jax.lax.scan(layer, x, w)[0] ** 2).sum(), "x")


def gradient_of_layers(w, x):
    mapped = jax.shard_map(mapped_layers, mesh=_mesh(), in_specs=(SEQUENCE, ROWS), out_specs=WHOLE)
    return jax.grad(mapped)(w, x)


def gradient_of_plain_layers(w, x):
    return jax.grad(lambda w: (jax.lax.scan(lambda x, w: (x + jnp.tanh(x @ w), None), x, w)[0] ** 2).sum())(w)


@dataclasses.dataclass(frozen=True)
class Distributed:
    """A function, its arguments' shapes and where they lie, and the share of the temporaries it is given."""

    fun: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    given: tuple[PartitionSpec, ...]
    results: Any
    share: float
    plain: Callable[..., Any]
    mapped: bool = False
    donated: tuple[int, ...] = ()
    options: shm.Options = dataclasses.field(default_factory=shm.Options)


_EXACT = shm.Options(numerics="exact")
_HEADS = ((8, 512, 16),) * 3
ROWS = PartitionSpec("x")
_ROWS = ((4096, 8), (256, 8), (256, 4))
_EXPERTS = ((8, 32, 128), (8, 128, 32), (32, 8), (1024, 32))
_LAYERS = ((64, 512), (512, 64), (1024, 64), (1024, 64))
_BATCH = (WHOLE, WHOLE, HEADS, HEADS)
PROGRAMS = {
    "heads": Distributed(attention, _HEADS, (HEADS,) * 3, HEADS, 0.1, attention),
    "sequence": Distributed(attention, _HEADS, (SEQUENCE, WHOLE, WHOLE), SEQUENCE, 0.1, attention),
    "constrained": Distributed(constrained_attention, _HEADS, (WHOLE,) * 3, WHOLE, 0.4, attention),
    "mapped heads": Distributed(attention, _HEADS, (HEADS,) * 3, HEADS, 0.1, attention, mapped=True),
    "mapped sequence": Distributed(gathered_attention, _HEADS, (SEQUENCE,) * 3, SEQUENCE, 0.6, attention, mapped=True),
    "rows": Distributed(kernel_matvec, _ROWS, (ROWS, WHOLE, WHOLE), ROWS, 0.1, kernel_matvec),
    "nearest": Distributed(nearest, ((64, 8), (8192, 8)), (WHOLE, ROWS), WHOLE, 0.1, nearest),
    "experts": Distributed(experts, _EXPERTS, (ROWS, ROWS, WHOLE, WHOLE), WHOLE, 0.1, experts),
    "causal": Distributed(
        causal_attention, ((512, 16),) * 3, (ROWS, WHOLE, WHOLE), ROWS, 0.3, causal_attention, options=_EXACT
    ),
    "scanned step": Distributed(scanned_step, ((6, 32, 32), (2048, 32)), (WHOLE, ROWS), WHOLE, 0.25, scanned_step),
    "train step": Distributed(train_step, _LAYERS, _BATCH, (WHOLE, WHOLE), 0.7, train_step, donated=(0, 1)),
    "mapped train step": Distributed(
        mapped_step, _LAYERS, _BATCH, (WHOLE, WHOLE), 0.6, train_step, mapped=True, donated=(0, 1)
    ),
    "gradient of mapped": Distributed(gradient_of_mapped, _LAYERS, _BATCH, (WHOLE, WHOLE), 0.6, gradient_of_rows),
    "gradient of mapped layers": Distributed(
        gradient_of_layers,
        ((8, 64, 64), (4096, 64)),
        (SEQUENCE, ROWS),
        SEQUENCE,
        0.6,
        gradient_of_plain_layers,
        options=_EXACT,
    ),
    "gradient of ring": Distributed(
        gradient_of_ring, _HEADS, (SEQUENCE,) * 3, (SEQUENCE,) * 3, 0.25, gradient_of_attention
    ),
}


def outcome(one: Distributed) -> dict[str, Any]:
    """Plans a program for its share of the temporaries, runs both and compares."""
    mesh = _mesh()
    shardings = [NamedSharding(mesh, spec) for spec in one.given]
    fun = jax.shard_map(one.fun, mesh=mesh, in_specs=one.given, out_specs=one.results) if one.mapped else one.fun
    out = jax.tree.map(lambda spec: NamedSharding(mesh, spec), one.results)
    specs = [jax.ShapeDtypeStruct(s, np.float32, sharding=g) for s, g in zip(one.shapes, shardings, strict=True)]
    with mesh:
        original = export(jax.jit(fun, out_shardings=out, donate_argnums=one.donated))(*specs)
    before: Any = shm.profile(original, target="cpu")
    measured = before.measured
    budget = measured.peak_bytes - int((1 - one.share) * measured.temp_bytes)
    plan = shm.plan(original, budget, target="cpu", options=one.options)
    values = [normals(*shape, seed=i) for i, shape in enumerate(one.shapes)]
    arguments = [jax.device_put(v, g) for v, g in zip(values, shardings, strict=True)]
    new, compiled = _run(plan.exported, arguments, one.donated)
    old, unsplit = _run(original, arguments, one.donated)
    exact = in_f64(one.plain, *values)
    return {
        "budget": budget,
        "before": measured.peak_bytes,
        "temporaries": measured.temp_bytes,
        "static temporaries": before.temp_bytes,
        "after": sum(memory_of(compiled)),
        "fits": plan.fits,
        "steps": [{"pass": step.pass_name, **dataclasses.asdict(step.params)} for step in plan.steps],
        "summaries": plan.summaries,
        "refusals": [dataclasses.asdict(r) for r in plan.refusals],
        "wrong": [
            message
            for three in zip(new, old, exact, strict=True)
            if (message := yardstick(*(np.asarray(a) for a in three)))
        ],
        "same shardings": all(a.sharding.is_equivalent_to(b.sharding, a.ndim) for a, b in zip(new, old, strict=True)),
        "report": str(plan),
        "more collectives": sorted(_collectives(compiled) - _collectives(unsplit)),
        "same signature": _signature(plan.exported) == _signature(original),
    }


def called() -> dict[str, Any]:
    """A function under `shm.jit`, given arrays that lie on several devices."""
    mesh = _mesh()
    w, x = (normals(*shape, seed=i) for i, shape in enumerate(((6, 32, 32), (2048, 32))))
    places = NamedSharding(mesh, WHOLE), NamedSharding(mesh, ROWS)
    arguments = [jax.device_put(v, place) for v, place in zip((w, x), places, strict=True)]
    step = shm.jit(scanned_step, budget="450 KiB", donate_argnums=0)
    plan = step.plan(*arguments)
    plans: list[Any] = []
    with recording(plans):
        result = step(*arguments)
    again = [jax.device_put(v, place) for v, place in zip((w, x), places, strict=True)]
    (by_jax,) = memory_of(jax.jit(scanned_step, donate_argnums=0).lower(*arguments).compile())[:1]
    return {
        "arguments": plan.before.measured.argument_bytes,
        "arguments by jax": by_jax,
        "budget": plan.budget_bytes,
        "before": plan.before.peak_bytes,
        "after": sum(memory_of(step.lower(*again).compile())),
        "report": str(plan),
        "plans": len({id(each) for each in (plan, *plans)}),
        "donated": arguments[0].is_deleted(),
        "wrong": yardstick(np.asarray(result), np.asarray(jax.jit(scanned_step)(w, x)), in_f64(scanned_step, w, x)[0]),
    }


def called_inside() -> dict[str, Any]:
    """The same function within another, of values computed from arrays on two meshes of the same devices."""
    devices = np.array(jax.devices()[:DEVICES])
    line, square = Mesh(devices, ("x",)), Mesh(devices.reshape(2, 4), ("a", "b"))
    w, x = (normals(*shape, seed=i) for i, shape in enumerate(((6, 32, 32), (2048, 32))))
    places = NamedSharding(square, WHOLE), NamedSharding(line, ROWS)
    arguments = [jax.device_put(v, place) for v, place in zip((w, x), places, strict=True)]
    step = shm.jit(scanned_step, budget="450 KiB")
    plans: list[Any] = []
    with recording(plans):
        result = jax.jit(lambda w, x: step(w, 2 * x))(*arguments)
    (plan,) = plans
    elsewhere = jax.device_put(w, NamedSharding(Mesh(devices[::-1], ("x",)), WHOLE))
    return {
        "arguments": plan.before.measured.argument_bytes,
        "whole": w.nbytes + x.nbytes,
        "report": str(plan),
        "wrong": yardstick(*(np.asarray(a) for a in (result, jax.jit(scanned_step)(w, 2 * x))), _doubled(w, x)),
        "errors": [_error(jitted, elsewhere, arguments[1]) for jitted in (step, jax.jit(scanned_step))],
    }


def masked_attention(q, k, v, lengths):
    """Causal, over the first keys of each example: batch, queries, heads, depth."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / np.sqrt(q.shape[-1])
    kept = jnp.tri(q.shape[1], dtype=bool) & (jnp.arange(k.shape[1]) < lengths[:, None])[:, None, None]
    weights = jax.nn.softmax(jnp.where(kept, scores, -1e30), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def gradient_of_masked(q, k, v, lengths):
    loss = lambda *given: jnp.sin(masked_attention(*given, lengths).astype(jnp.float32)).sum()  # noqa: E731
    return jax.grad(loss, (0, 1, 2))(q, k, v)


def by_kernel(along: PartitionSpec) -> dict[str, Any]:
    """Attention whose queries, keys and values lie on 4 x 2 devices, by the formulas of cuDNN's kernels."""
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(4, 2), ("a", "b"))
    places = [NamedSharding(mesh, along)] * 3 + [NamedSharding(mesh, PartitionSpec("a"))]
    values = [normals(8, 256, 4, 64, seed=i).astype(jnp.bfloat16) for i in range(3)]
    values.append(np.arange(64, 256, 24, dtype=np.int32))
    arguments = [jax.device_put(v, place) for v, place in zip(values, places, strict=True)]
    out = tuple(places[:3])
    original = export(jax.jit(gradient_of_masked, out_shardings=out))(*arguments)
    program = ingest(original)
    module = normal(program)
    calls = rewrite(module, CudnnAttention())
    shapes = [op.operands[0].type.shape for op in walk_operations(module.operation) if op.name == _CALL]
    with_formulas(module)
    remove_rules(module)
    new, compiled = _run(as_exported(program, module, "cpu"), arguments, ())
    old, plain = _run(original, arguments, ())
    exact = in_f64(gradient_of_masked, *values)
    return {
        "calls": calls,
        "shapes": [list(shape) for shape in shapes],
        "more collectives": sorted(_collectives(compiled) - _collectives(plain)),
        "wrong": [
            wrong for three in zip(new, old, exact, strict=True) if (wrong := yardstick(*map(np.asarray, three)))
        ],
    }


def _doubled(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return in_f64(scanned_step, w, 2 * x)[0]


def _error(jitted: Any, *arguments: Any) -> str:
    try:
        jitted(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def _run(exported: Any, arguments: list[Any], donated: tuple[int, ...]) -> tuple[list[Any], Any]:
    copies = [jnp.array(a) for a in arguments]
    compiled = jax.jit(exported.call, donate_argnums=donated).lower(*copies).compile(compiler_options=UNOPTIMISED)
    return jax.tree.leaves(compiled(*copies)), compiled


def _collectives(compiled: Any) -> set[str]:
    """The kinds of collectives in a compiled program."""
    return set(re.findall(r" (all-\w+|collective-\w+|reduce-scatter)\(", compiled.as_text()))


def _signature(exported: Any) -> tuple[Any, ...]:
    return exported.in_shardings_hlo, exported.out_shardings_hlo, exported.nr_devices, exported.in_avals


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    outcomes = {name: outcome(one) for name, one in PROGRAMS.items()}
    kernels = {
        "kernel on heads": by_kernel(PartitionSpec("a", None, "b")),
        "kernel on a sequence": by_kernel(PartitionSpec("a", "b")),
    }
    print(json.dumps({**outcomes, "called": called(), "called inside": called_inside(), **kernels}))
