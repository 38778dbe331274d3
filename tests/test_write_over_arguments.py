"""Loops that write over donated arguments: an update of parameters in the loop that computes their gradients."""

from __future__ import annotations

import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export
from support import Candidate, fusable, in_f64, normal, normals, run, same_bits, text, yardstick

import stablehlo_mem as shm
from stablehlo_mem.analysis.overwritten_arguments import overwritten_arguments
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import clone_module, parse_module
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes.fuse_into_scan import FusedIntoScan, FuseIntoScan
from stablehlo_mem.rewriting.write_over_arguments import write_over_arguments
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.measurement import Measured
from tests.test_targets import THREE

ADAMW = optax.adamw(1e-3, eps=1e-3)
LAYERS = 6


def loss(params, x):
    y, _ = jax.lax.scan(lambda y, layer: (jnp.tanh(y @ layer["w"] + layer["b"]), None), x, params)
    return (y**2).mean()


def train_step(params, moments, x):
    value, gradients = jax.value_and_grad(loss)(params, x)
    updates, moments = ADAMW.update(gradients, moments, params)
    return optax.apply_updates(params, updates), moments, value


def arguments(layers=LAYERS, width=16, batch=4):
    params = {"w": normals(layers, width, width) / 4, "b": normals(layers, width, seed=1)}
    return params, ADAMW.init(params), normals(batch, width, seed=2)


def flat(step):
    """A step whose arguments are all the arrays."""
    shapes = jax.eval_shape(arguments)
    return lambda *leaves: step(*jax.tree.unflatten(jax.tree.structure(shapes), leaves))


def exported(step=train_step, platform="cpu", *, donates=True, **sizes: int):
    specs = jax.tree.leaves(jax.eval_shape(lambda: arguments(**sizes)))
    donated = tuple(range(len(specs) - 1)) if donates else ()
    return export.export(jax.jit(flat(step), donate_argnums=donated), platforms=[platform])(*specs)


def with_updates_in_the_scan(program):
    """The program in normal form, all updates by the gradients of its layers in the loop that computes them."""
    module = normal(program)
    while found := [c for c in fusable(entry_graph(module)) if isinstance(c, Candidate)]:
        params = found[-1].step.params
        assert isinstance(params, FusedIntoScan)
        FuseIntoScan().apply(module, params)
    remove_rules(module)
    return module


@pytest.mark.parametrize("delayed", [False, True])
@pytest.mark.parametrize("donors", [False, True])
def test_parameters_and_moments_are_written_over(delayed, donors):
    """Also where it is not said which result an argument is given to, and three are of one type."""
    program = ingest(exported())
    module = with_updates_in_the_scan(program)
    if donors:
        lines = text(module)
        for position in range(8):
            lines = lines.replace(f"tf.aliasing_output = {position} : i32", "jax.buffer_donor = true")
        module = parse_module(lines)
    assert len(overwritten_arguments(entry_graph(module))) == 6
    write_over_arguments(module, delayed=delayed)
    assert module.operation.verify()
    assert text(module).count("stablehlo.slice %arg") == 6 * delayed
    args = jax.tree.leaves(arguments())
    new, old = run(program, module, *args), run(program, None, *args)
    assert all(map(same_bits, new, old))


def read_again(params, moments, x):
    """The parameters' old norm is a result too."""
    norm = (params["w"] ** 2).sum()
    return (*train_step(params, moments, x), norm)


def reversed_moments(params, moments, x):
    """Each step of the update would read a row of the moments that another has written."""
    value, gradients = jax.value_and_grad(loss)(params, x)
    updates, moments = ADAMW.update(gradients, jax.tree.map(lambda m: m[::-1] if m.ndim else m, moments), params)
    return optax.apply_updates(params, updates), moments, value


@pytest.mark.parametrize(("step", "count"), [(read_again, 5), (reversed_moments, 2)])
@pytest.mark.parametrize("delayed", [False, True])
def test_what_is_read_elsewhere_stays(step, count, delayed):
    program = ingest(exported(step))
    module = with_updates_in_the_scan(program)
    assert len(overwritten_arguments(entry_graph(module))) == count
    write_over_arguments(module, delayed=delayed)
    args = jax.tree.leaves(arguments())
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def random_update(seed: int):
    """A loop of a user's own over chunks of some arrays, and their shape: some rows are read where they are written."""
    choose = random.Random(seed)
    arrays, chunk, along = choose.choice([1, 2, 3]), choose.choice([1, 2, 3]), choose.choice([0, 1])
    backwards, carried = choose.random() < 0.5, choose.random() < 0.4
    places = ["here"] * 6 + ["mirrored", "before", "written", "all"]
    reads = [[(choose.randrange(arrays), choose.choice(places)) for _ in "ab"] for _ in range(arrays)]
    order = choose.sample(range(arrays), arrays)

    def update(*given):
        def body(step, carry):
            new, old = list(carry[:arrays]), carry[arrays:] or given
            start = (6 // chunk - 1 - step if backwards else step) * chunk

            def read(array, place):
                if place == "all":
                    return old[array].sum()
                source = new[array] if place == "written" else old[array]
                at = {"mirrored": 6 - chunk - start, "before": jnp.maximum(start - chunk, 0)}.get(place, start)
                return jnp.sin(jax.lax.dynamic_slice_in_dim(source, at, chunk, along))

            shape = jax.lax.dynamic_slice_in_dim(new[0], 0, chunk, along).shape
            rows = [jnp.zeros(shape) + sum(read(*one) for one in of_array) for of_array in reads]
            new = [jax.lax.dynamic_update_slice_in_dim(a, row, start, along) for a, row in zip(new, rows, strict=True)]
            return (*new, *carry[arrays:])

        start = (*map(jnp.zeros_like, given), *(given if carried else ()))
        new = jax.lax.fori_loop(0, 6 // chunk, body, start)
        return tuple(new[i] for i in order)

    return update, [(6, 5) if along == 0 else (5, 6)] * arrays


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_updates(first):
    written_over = 0
    for seed in range(first, first + 10):
        update, shapes = random_update(seed)
        specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        jitted = jax.jit(update, donate_argnums=tuple(range(len(shapes))))
        program = ingest(export.export(jitted)(*specs))
        module = normal(program)
        remove_rules(module)
        written_over += len(overwritten_arguments(entry_graph(module)))
        args = [normals(*shape, seed=i) for i, shape in enumerate(shapes)]
        for delayed in (False, True):
            copy = clone_module(module)
            write_over_arguments(copy, delayed=delayed)
            assert copy.operation.verify()
            assert all(map(same_bits, run(program, copy, *args), run(program, None, *args))), seed
    assert written_over


def test_without_donation_nothing_is_written_over():
    program = ingest(exported(donates=False))
    module = with_updates_in_the_scan(program)
    before = text(module)
    write_over_arguments(module)
    assert text(module) == before


@pytest.mark.parametrize("step", [train_step, reversed_moments])
def test_static_profile_knows_which_loops_write_beside_arguments(step):
    """A result that a loop fills beside the argument it is donated to has an array of its own until it is copied."""
    layers = 16
    module = with_updates_in_the_scan(ingest(exported(step, layers=layers, width=64)))
    stack = layers * 64 * 64 * 4
    beside = 6 - len(overwritten_arguments(entry_graph(module)))
    least = (0, 0) if step is train_step else (2, 3)
    assert least[0] * stack <= find_peak(entry_graph(module), CHIPS["cpu"]).temp_bytes < (least[1] + 1) * stack
    assert (beside == 0) == (step is train_step)


@pytest.mark.parametrize("target", THREE)
def test_no_gradient_of_all_layers(target):
    """A training step takes less than its gradients: as it is compiled, they are most of it."""
    sizes: dict[str, int] = {"layers": 24, "width": 1024 if target == "tpu:v5e" else 256, "batch": 16}
    gradients = 24 * sizes["width"] ** 2 * 4
    program = exported(train_step, target.partition(":")[0], donates=True, **sizes)
    plan = shm.plan(program, "40%", target=target)
    assert plan.fits
    assert isinstance(plan.before.measured, Measured)
    assert isinstance(plan.after.measured, Measured)
    # A TPU keeps half of them in its own memory.
    assert plan.before.measured.temp_bytes > gradients / 2 > plan.after.measured.temp_bytes
    assert {step.pass_name for step in plan.steps} >= {"fuse-into-scan"}
    if target == "cpu":
        assert plan.exported is not None
        args = jax.tree.leaves(arguments(**sizes))
        new, old, exact = plan.exported.call(*args), program.call(*args), in_f64(flat(train_step), *args)
        for one in zip(*map(jax.tree.leaves, (new, old, exact)), strict=True):
            assert not yardstick(*map(np.asarray, one))
