"""What loops keep for later ones instead of computing it again."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import clone_module
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.splitting.saved_values import worth_saving
from stablehlo_mem.splitting.split_step import Split
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.utils.plain_data import plain_data, restored
from tests.support import (
    UNOPTIMISED,
    apply_split,
    exported,
    in_f64,
    memory_of,
    normal,
    normals,
    possible_splits,
    program_of,
    run,
    yardstick,
)

ROWS, WIDTH, WIDE = 2048, 256, 4096
ARGS = normals(ROWS, WIDTH), normals(WIDTH, WIDE, seed=1) / 16, normals(WIDE, WIDTH, seed=2) / 64


def normalised(x, up, down):
    """Columns need all rows of what the wide layer gives; what comes after them needs each row of it once more."""
    y = jnp.tanh(x @ up) @ down
    return jnp.sin(y - y.max(0)) + x


def twice(x, up, down):
    """Two such layers: three loops, the last of which would compute everything again."""
    return normalised(normalised(x, up, down), up, down)


def along_rows(fun):
    module = normal(program_of(fun, *ARGS))
    found = possible_splits(module, (ROWS * WIDTH * 4,))
    return module, next(p for p in found if p.schedule.loop_count > 1 and p.schedule.axis.n == ROWS)


def kept(fun):
    _, possible = along_rows(fun)
    values = worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], 1 << 40)
    return [(possible.graph.title(possible.graph.values[v].producer), str(possible.graph.values[v])) for v in values]


def test_what_spares_most_is_kept():
    assert kept(normalised) == [("dot_general", f"f32[{ROWS},{WIDTH}]")]
    assert kept(twice) == [("dot_general", f"f32[{ROWS},{WIDTH}]")]


def test_what_is_too_large_is_not():
    _, possible = along_rows(normalised)
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], ROWS * WIDTH * 4 - 1) == ()


def test_a_single_loop_keeps_nothing():
    module = normal(program_of(lambda x, up, down: jnp.tanh(x @ up) @ down, *ARGS))
    regions = [p for p in possible_splits(module) if p.schedule.loop_count == 1]
    assert regions
    assert all(worth_saving(p.graph, p.schedule, CHIPS["cpu"], 1 << 40) == () for p in regions)


@pytest.mark.parametrize("fun", [normalised, twice])
def test_plans_keep_where_there_is_room(fun):
    program = exported(fun, *ARGS)
    fixed, temporaries = memory_of(jax.jit(fun).lower(*ARGS).compile(compiler_options=UNOPTIMISED))
    budget = fixed + temporaries // 3
    # Sums of the wide layer in parts would be faster and need nothing kept.
    plan = shm.plan(program, budget, target="cpu", options=shm.Options(numerics="exact"))
    steps = [step for step in plan.steps if step.pass_name == "split-into-loops"]
    assert any(step.params.kept for step in steps)
    assert "kept from one loop to the next" in " ".join(str(plan).split())
    assert plan.fits
    assert plan.before.peak_bytes > budget >= plan.after.peak_bytes
    again = 2 * ROWS * WIDTH * WIDE
    assert plan.cost_after.flops < plan.cost_before.flops + again
    new, old = (np.asarray(one.call(*ARGS)) for one in (plan.result, program))
    assert yardstick(new, old, in_f64(fun, *ARGS)[0]) is None


def test_steps_are_json_and_keep_the_results():
    module, possible = along_rows(normalised)
    values = worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], 1 << 40)
    decision = dataclasses.replace(possible.decision(100), kept=values)
    assert restored(Split, json.loads(json.dumps(plain_data(decision)))) == decision
    program, after = program_of(normalised, *ARGS), clone_module(module)
    SplitIntoLoops().apply(after, decision)
    assert str(after).count("stablehlo.while") == 2
    assert str(after).count("stablehlo.tanh") == 1
    (new,), (old,), (true,) = run(program, after, *ARGS), run(program, module, *ARGS), in_f64(normalised, *ARGS)
    assert yardstick(new, old, true) is None


def cumulative(x, up, down):
    """Equal to the maximum of its column: one element of each."""
    y = jnp.cumsum(jnp.tanh(x @ up) @ down, axis=0)
    return jnp.where(y == y.max(0), 1.0, 0.0)


def spread(x, up, down):
    """What is compared with its maximum is larger than what it is made of, element by element."""
    y = jnp.tanh(x @ up) @ down
    z = jnp.exp(y / jnp.sqrt((y * y).sum(1, keepdims=True)))[:, :, None] * jnp.arange(1.0, 9.0) + 1
    return jnp.where(z == z.max(0), 1.0, 0.0).sum(2)


@pytest.mark.parametrize("fun", [cumulative, spread])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chunk", [30, 64, 100])
def test_values_equal_to_their_maximum_stay_so(fun, reverse, chunk):
    """Whatever is kept, and however the last chunk overlaps the one before: no element may be rounded in two ways."""
    args = normals(199, 16), normals(16, 64, seed=1) / 4, normals(64, 16, seed=2) / 8
    turned = lambda x, *w: fun(x[::-1], *w)[::-1] if reverse else fun(x, *w)  # noqa: E731
    program = program_of(turned, *args)
    module = normal(program)
    found = [p for p in possible_splits(module, (199 * 16 * 2,), all_forms=True) if p.axis.n == 199]
    assert any(p.schedule.loop_count > 1 for p in found)
    for possible in found:
        new = run(program, apply_split(module, possible, chunk), *args)
        assert (new[0].sum(0) >= 1).all(), possible


def test_nothing_is_kept_of_which_compared_values_would_be_made_again():
    nbytes = ROWS * WIDTH * 4
    _, possible = along_rows(spread)
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], nbytes) == ()
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], 8 * nbytes) != ()


@pytest.mark.parametrize("rows", [1999, 2000])
def test_gradients_of_maxima_of_cumulative_sums(rows):
    def fun(x, up, down):
        return jax.grad(lambda up: jax.lax.cumsum(jnp.tanh(x @ up) @ down, axis=0).max(0).sum())(up)

    rng = np.random.default_rng(0)
    args = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 128), (128, 1024), (1024, 128))]
    args[1:] = args[1] / 128**0.5, args[2] / 32
    program = exported(fun, *args)
    fixed, temporaries = memory_of(jax.jit(fun).lower(*args).compile(compiler_options=UNOPTIMISED))
    plan = shm.plan(program, fixed + temporaries * 3 // 10, target="cpu")
    assert any(step.params.kept for step in plan.steps if step.pass_name == "split-into-loops")
    new, old = (np.asarray(one.call(*args)) for one in (plan.result, program))
    np.testing.assert_allclose(new, old, atol=1e-4 * np.abs(old).max())


def test_a_value_that_the_loops_do_not_make_cannot_be_kept():
    module, possible = along_rows(normalised)
    for values in ((9999,), (possible.schedule.outputs[0].value,)):
        with pytest.raises(ValueError, match="cannot keep"):
            SplitIntoLoops().apply(
                clone_module(module),
                dataclasses.replace(possible.decision(64), kept=values),
            )


def waits(x, v, w):
    """The sine could run in the first loop, and runs in two later ones; what it is made of comes after the first."""
    tanh = jnp.tanh(x)
    first = jnp.exp(tanh @ v).sum(0)
    sine = jnp.sin(tanh @ jnp.exp(w))
    second = (sine * first).sum(0)
    return jnp.tanh(sine * second).sum(0)


def test_the_first_loop_that_runs_it_keeps_a_value():
    args = normals(64, 256), normals(256, 48), normals(256, 48, seed=1)
    program = program_of(waits, *args)
    module = normal(program)
    keeping = [p for p in possible_splits(module, (64 * 48 * 4,), all_forms=True) if p.kept]
    later = [p for p in keeping for item in p.schedule.outputs if item.value in p.kept and item.loop > 0]
    assert later
    for possible in later:
        (new,) = run(program, apply_split(module, possible, 16), *args)
        np.testing.assert_allclose(new, run(program, module, *args)[0], rtol=1e-4)
