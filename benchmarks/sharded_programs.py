"""Training steps over eight devices: GPT-2 as `training_programs` has it, distributed in the ways that users do it.

`LAYOUTS[name]` says how; `export(name, platform, **sizes)` is the step. For processes with eight devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import training_programs
from jax.sharding import Mesh, NamedSharding, PartitionSpec

DEVICES = 8
SIZES = {"batch": 32, "tokens": 1024, "layers": 12, "width": 768, "heads": 12, "vocabulary": 50304}
"""GPT-2 small, its vocabulary rounded up so that it can be shared out."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a step is distributed.

    Attributes:
        mesh: sizes of the axes "data" and "model".
        sequence: whether the tokens of a sequence are shared out over "model".
        features: whether embeddings are shared out over their features, else over the vocabulary.
    """

    mesh: tuple[int, int]
    sequence: bool = False
    features: bool = False


LAYOUTS = {
    "fsdp": Layout((8, 1)),
    "fsdp, embedding over features": Layout((8, 1), features=True),
    "fsdp 4 x tensor 2": Layout((4, 2)),
    "fsdp 4 x tensor 2, sequence": Layout((4, 2), sequence=True),
}


@dataclasses.dataclass(frozen=True)
class ByHand:
    """What an expert writes to save memory.

    Attributes:
        remat: whether each layer is a `jax.checkpoint`.
        micro_batches: of how many parts of each device's batch gradients are summed, one after the other.
    """

    remat: bool = False
    micro_batches: int = 1


@dataclasses.dataclass(frozen=True)
class Distributed:
    """A step whose arguments and results are leaves.

    Attributes:
        program: the function; its specs have shardings.
        results: the shardings of what it returns: new parameters and states lie where the old ones do.
    """

    program: training_programs.Program
    results: tuple[NamedSharding, ...]

    def jitted(self, function: Callable[..., Any]) -> Any:
        """A function of the same arguments and results: the step, or what a plan makes of it."""
        return jax.jit(function, donate_argnums=self.program.donated, out_shardings=self.results)

    def export(self, platform: str) -> jax.export.Exported:
        return jax.export.export(self.jitted(self.program.function), platforms=[platform])(*self.program.specs)


def export(
    layout: str, platform: str, *, scanned: bool = True, by_hand: ByHand = ByHand(), **sizes: int
) -> jax.export.Exported:
    """The step of a layout for a platform."""
    return distributed(layout, scanned=scanned, by_hand=by_hand, **sizes).export(platform)


def distributed(layout: str, *, scanned: bool = True, by_hand: ByHand = ByHand(), **sizes: int) -> Distributed:
    """The step of a layout."""
    one, sizes = LAYOUTS[layout], {**SIZES, **sizes}
    mesh = Mesh(np.array(jax.devices()[:DEVICES]).reshape(one.mesh), ("data", "model"))
    program = _gpt2(one, mesh, scanned, by_hand, **sizes)
    specs = jax.tree.map_with_path(lambda path, spec: _placed(path, spec, one, mesh, scanned), program.specs)
    flat = dataclasses.replace(program, specs=specs).flat
    results = jax.eval_shape(flat.function, *flat.specs)
    assert all(results[i].shape == flat.specs[i].shape for i in flat.donated)
    whole = NamedSharding(mesh, PartitionSpec())
    return Distributed(flat, tuple(flat.specs[i].sharding if i in flat.donated else whole for i in range(len(results))))


def _gpt2(
    layout: Layout, mesh: Mesh, scanned: bool, by_hand: ByHand, layers: int, heads: int, **sizes: int
) -> training_programs.Program:
    """`training_programs.gpt2` with what a distributed one has besides: activations stay where the batch lies."""
    unconstrained = training_programs.gpt2(layers=layers, heads=heads, scanned=scanned, **sizes)
    place = NamedSharding(mesh, PartitionSpec("data", "model" if layout.sequence else None, None))

    def layer(x, p):
        x = jax.lax.with_sharding_constraint(x, place)
        return jax.lax.with_sharding_constraint(training_programs.block(p, x, heads, True), place), None

    if by_hand.remat:
        layer = jax.checkpoint(layer)

    def loss(p, inputs, labels):
        x = p["tokens"][inputs] + p["positions"][: inputs.shape[1]]
        x = jax.lax.with_sharding_constraint(x, place)
        if scanned:
            x, _ = jax.lax.scan(layer, x, p["layers"])
        else:
            for one in p["layers"]:
                x, _ = layer(x, one)
        x = training_programs.layer_norm(p["norm"], x)
        return optax.softmax_cross_entropy_with_integer_labels(x @ p["tokens"].T, labels).mean()

    parameters, _, *batch = unconstrained.specs
    if by_hand.micro_batches == 1:
        return training_programs.train_step(loss, parameters, *batch)
    placed = jax.tree.map_with_path(lambda path, spec: _placed(path, spec, layout, mesh, scanned), parameters)
    gradient = _summed_gradient(jax.value_and_grad(loss), placed, layout, mesh, by_hand.micro_batches)
    return training_programs.train_step(loss, parameters, *batch, value_and_gradient=gradient)


def _summed_gradient(
    value_and_gradient: Callable[..., Any], parameters: Any, layout: Layout, mesh: Mesh, count: int
) -> Callable[..., Any]:
    """Micro-batches by hand: each takes a share of what every device has; sums lie where the parameters do."""
    places = jax.tree.map(lambda spec: spec.sharding, parameters)
    rows = NamedSharding(mesh, PartitionSpec(None, "data", "model" if layout.sequence else None))

    def parted(batch):
        shared = batch.reshape(layout.mesh[0], count, -1, batch.shape[1]).swapaxes(0, 1)
        return jax.lax.with_sharding_constraint(shared.reshape(count, -1, batch.shape[1]), rows)

    def summed(p, *batch):
        def add(sums, part):
            value, gradient = value_and_gradient(p, *part)
            sums = jax.tree.map(jnp.add, sums, (value, gradient))
            return (sums[0], jax.lax.with_sharding_constraint(sums[1], places)), None

        zeros = jax.lax.with_sharding_constraint(jax.tree.map(jnp.zeros_like, p), places)
        (value, gradient), _ = jax.lax.scan(add, (jnp.zeros(()), zeros), tuple(map(parted, batch)))
        return value / count, jax.tree.map(lambda g: g / count, gradient)

    return summed


def _placed(path: Any, spec: Any, layout: Layout, mesh: Mesh, scanned: bool) -> Any:
    names = [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]
    if spec.dtype == np.int32 and len(spec.shape) == 2:
        where: tuple[Any, ...] = ("data", "model" if layout.sequence else None)
    else:
        where = _of_parameter(names, spec.shape, layout, scanned)
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype, sharding=NamedSharding(mesh, PartitionSpec(*where)))


def _of_parameter(names: list[str], shape: tuple[int, ...], layout: Layout, scanned: bool) -> tuple[Any, ...]:
    """Matrices are shared out over "data" along their inputs, over "model" along their outputs."""
    stacked = scanned and "layers" in names
    rank = len(shape) - stacked
    if rank < 2:
        return ()
    if "tokens" in names:
        return (("model", "data"), None)[:: -1 if layout.features else 1]
    return (*([None] if stacked else []), "data", "model")
