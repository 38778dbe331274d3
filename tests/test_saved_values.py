"""What loops keep for later ones instead of computing it again, and the first loops of an axis without later ones."""

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


FEW = normals(200, 32), normals(32, 512, seed=1) / 6, normals(512, 32, seed=2) / 23
"""Of the same layers, to run them as the tests do: a matmul takes a thousand times as long as it should."""


def along_rows(fun, args=ARGS):
    module = normal(program_of(fun, *args))
    found = possible_splits(module, (args[0].nbytes,))
    return module, next(p for p in found if p.schedule.loop_count > 1 and p.schedule.axis.n == len(args[0]))


def kept(fun):
    _, possible = along_rows(fun)
    graph = possible.graph
    sets = worth_saving(graph, possible.schedule, CHIPS["cpu"], 1 << 40)
    return [[(graph.title(graph.values[v].producer), str(graph.values[v])) for v in values] for values in sets]


def test_sets_that_save_most_for_their_bytes_are_kept():
    """The fastest first: of two layers the output of both and what the second one is added to."""
    output, sine = ("dot_general", f"f32[{ROWS},{WIDTH}]"), ("add", f"f32[{ROWS},{WIDTH}]")
    assert kept(normalised) == [[output]]
    assert kept(twice) == [[output, sine, output], [output, output], [output]]


def test_what_is_too_large_is_not():
    _, possible = along_rows(normalised)
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], ROWS * WIDTH * 4 - 1) == []


def test_a_single_loop_keeps_nothing():
    module = normal(program_of(lambda x, up, down: jnp.tanh(x @ up) @ down, *ARGS))
    regions = [p for p in possible_splits(module) if p.schedule.loop_count == 1]
    assert regions
    assert all(worth_saving(p.graph, p.schedule, CHIPS["cpu"], 1 << 40) == [] for p in regions)


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


def split_along_rows(**changes):
    """The split of `normalised` with other parameters, as its step on disk says."""
    module, possible = along_rows(normalised, FEW)
    decision = dataclasses.replace(possible.decision(30), **changes)
    after = clone_module(module)
    SplitIntoLoops().apply(after, restored(Split, json.loads(json.dumps(plain_data(decision)))))
    return module, after


def assert_equivalent(module, after):
    program = program_of(normalised, *FEW)
    (new,), (old,), (true,) = run(program, after, *FEW), run(program, module, *FEW), in_f64(normalised, *FEW)
    assert yardstick(new, old, true) is None


def test_steps_are_json_and_keep_the_results():
    _, possible = along_rows(normalised, FEW)
    module, after = split_along_rows(kept=worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], 1 << 40)[0])
    assert str(after).count("stablehlo.while") == 2
    assert str(after).count("stablehlo.tanh") == 1
    assert_equivalent(module, after)


def test_of_the_first_loops_alone_later_ones_stay_outside():
    module, after = split_along_rows(first=1)
    loop, _, rest = str(after).partition("stablehlo.dynamic_update_slice")
    assert str(after).count("stablehlo.while") == 1
    assert "stablehlo.tanh" in loop
    assert "stablehlo.sine" in rest
    assert_equivalent(module, after)


def squares(x, up, down):
    """The second loop would add up a matrix that is as large as all that the first one spares."""
    y = jnp.tanh(x @ up) @ down
    z = jnp.sin(y - y.max(0))
    return jnp.tanh(z.T @ z).sum()


def test_a_plan_has_the_first_loop_alone_where_the_second_adds_up_too_much():
    args = normals(256, 1024), normals(1024, 8192, seed=1) / 32, normals(8192, 1024, seed=2) / 128
    program = exported(squares, *args)
    plan = shm.plan(program, "75%", target="cpu")
    assert plan.fits
    assert plan.before.peak_bytes > plan.budget_bytes >= plan.after.peak_bytes
    assert any(step.params.first for step in plan.steps if step.pass_name == "split-into-loops")
    new, old = (np.asarray(one.call(*args)) for one in (plan.result, program))
    np.testing.assert_allclose(new, old, rtol=1e-4)


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
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], nbytes) == []
    assert worth_saving(possible.graph, possible.schedule, CHIPS["cpu"], 8 * nbytes)


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
