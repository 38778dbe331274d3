"""`shm.jit(..., host=...)`, and memory kinds of arguments and results under `jit`, `budget` and `rescue`."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import signature_attributes
from stablehlo_mem.ir.host_memory import attributes_say_host
from stablehlo_mem.targets.measurement import Measured
from tests.test_targets import needs

OPTIMISER = optax.adamw(1e-3)
CLIPPED = optax.chain(optax.clip_by_global_norm(1.0), OPTIMISER)
MIB = 2**20


def parameters(layers=4, width=16):
    return {"w": jnp.full((layers, width, width), 0.1), "b": jnp.zeros((layers, width)), "scale": jnp.float32(2.0)}


def train_step(params, opt_state, x):
    """A step of AdamW, whose update is one expression over the tree; its layers are scanned."""
    return step_of(OPTIMISER, params, opt_state, x)


def clipped_step(params, opt_state, x):
    """The same with the gradients clipped by their norm, which must be known before the first update."""
    return step_of(CLIPPED, params, opt_state, x)


def step_of(optimiser, params, opt_state, x):
    def loss(p):
        y, _ = jax.lax.scan(lambda y, layer: (jnp.tanh(y @ layer["w"] + layer["b"]), None), x, layers(p))
        return (y**2).mean() * p["scale"]

    def layers(p):
        return {"w": p["w"], "b": p["b"]}

    value, gradients = jax.value_and_grad(loss)(params)
    updates, opt_state = optimiser.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value


def arguments(layers=4, width=16, batch=2, *, optimiser=OPTIMISER):
    params = parameters(layers, width)
    return params, optimiser.init(params), jnp.ones((batch, width))


def specs(layers, width, batch, *, optimiser=OPTIMISER):
    return jax.eval_shape(lambda: arguments(layers, width, batch, optimiser=optimiser))


def kinds(tree):
    return {x.sharding.memory_kind for x in jax.tree.leaves(tree) if x.ndim}


def equal(tree, other):
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


def placed(tree):
    device = jax.devices()[0]
    return jax.device_put(tree, SingleDeviceSharding(device, memory_kind="pinned_host"))


@pytest.mark.parametrize("host", ["opt_state", ("opt_state[0].mu", "opt_state[0].nu"), ["opt_state.0"]])
def test_the_state_of_the_optimiser_stays_on_the_host(host):
    step = shm.jit(train_step, "1GiB", host=host, donate_argnames=("params", "opt_state"))
    expected = jax.jit(train_step)(*arguments())
    results = step(*arguments())
    assert (kinds(results[0]), kinds(results[1][0].mu), kinds(results[1][0].nu)) == (
        {"device"},
        {"pinned_host"},
        {"pinned_host"},
    )
    assert equal(results, expected)
    params, state, _ = results
    x = arguments()[2]
    again = step(params, state, x)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((params, state)))
    assert equal(again, jax.jit(train_step)(*expected[:2], x))


def test_what_is_moved_to_the_host_is_donated():
    params, state, x = arguments()
    shm.jit(train_step, "1GiB", host="opt_state", donate_argnums=1)(params, state, x)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(params))
    params, state, x = arguments()
    shm.jit(train_step, "1GiB", host="opt_state")(params, state, x)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("donated", [(0, 1), (1,)])
def test_donated_arguments_become_the_results_of_their_memory(donated):
    """JAX itself pairs by shape and type alone: the parameters' results have those of the moments."""
    plan = shm.jit(train_step, "1GiB", host="opt_state", donate_argnums=donated, target="cpu").plan(*arguments())
    main = ingest(plan.exported).main
    of_arguments, of_results = (signature_attributes(main, which) for which in ("arg_attrs", "res_attrs"))
    aliased = {i: a["tf.aliasing_output"] for i, a in enumerate(of_arguments) if "tf.aliasing_output" in a}
    assert sum(attributes_say_host(of_arguments[i]) for i in aliased) == 4
    for i, output in aliased.items():
        assert attributes_say_host(of_arguments[i]) == attributes_say_host(of_results[int(str(output).split()[0])])


def test_results_lie_where_out_shardings_say():
    device = jax.devices()[0]
    host = SingleDeviceSharding(device, memory_kind="pinned_host")
    step = shm.jit(train_step, "1GiB", host="opt_state", out_shardings=SingleDeviceSharding(device))
    assert kinds(step(*arguments())) == {"device"}
    halves = shm.jit(lambda x: (x / 2, x * 2), "1GiB", out_shardings=(host, None))
    results = halves(jnp.ones(8))
    assert [x.sharding.memory_kind for x in results] == ["pinned_host", "device"]
    assert halves.plan(jnp.ones(8)).before.host_fixed_bytes == 32


def test_structures_tell_which_results_are_new_values():
    """The parameters have the structure of each moment: all arguments count, in order."""

    def swap(first, second, third):
        return first, second + 1, third

    ones = {"a": jnp.ones(3)}
    results = shm.jit(lambda p, m, v: (p, m, jax.tree.map(jnp.exp, v)), "1GiB", host=("m", "v"))(ones, ones, ones)
    assert [kinds(tree) for tree in results] == [{"device"}, {"pinned_host"}, {"pinned_host"}]
    results = shm.jit(swap, "1GiB", host="third")(jnp.ones(3), jnp.ones(3), jnp.ones(3))
    assert [kinds(x) for x in results] == [{"device"}, {"device"}, {"pinned_host"}]


def test_names_of_other_parameters():
    total = shm.jit(lambda *args, scale, **more: args[1] * scale + more["y"], "1GiB", host=("args[1]", "scale", "y"))
    results = total(jnp.ones(3), jnp.ones(3), scale=jnp.ones(3), y=jnp.ones(3))
    assert equal(results, jnp.full(3, 2.0))
    plan = total.plan(jnp.ones(3), jnp.ones(3), scale=jnp.ones(3), y=np.ones(3, np.float32))
    assert plan.before.host_fixed_bytes == 3 * 12  # the result is taken for the new value of args[0]


def test_a_name_of_nothing_is_an_error():
    with pytest.raises(shm.InputError) as caught:
        shm.jit(train_step, "1GiB", host=("opt_state", "optimiser"))
    assert str(caught.value) == (
        "host names 'optimiser', which is no parameter of train_step: its parameters are params, opt_state, x"
    )
    with pytest.raises(shm.InputError) as caught:
        shm.jit(train_step, "1GiB", host="opt_state.mu")(*arguments())
    assert str(caught.value) == (
        "host names opt_state.mu, and train_step has no such array: there are opt_state[0].count, "
        "opt_state[0].mu['b'], opt_state[0].mu['scale'], opt_state[0].mu['w'], opt_state[0].nu['b'], "
        "opt_state[0].nu['scale'], opt_state[0].nu['w']"
    )


@pytest.mark.parametrize("static", [{"static_argnames": "n"}, {"static_argnums": 1}])
def test_a_static_argument_is_no_array(static):
    def scaled(x, n):
        return x * n

    with pytest.raises(shm.InputError) as caught:
        shm.jit(scaled, "1GiB", host="n", **static)
    assert str(caught.value) == (
        "host names n, which is a static argument of scaled: JAX makes it a part of the program, in which it is no "
        "array"
    )


def test_all_keywords_have_a_name():
    def total(x, **more):
        return x + sum(y.sum() for y in jax.tree.leaves(more))

    given = {"a": jnp.ones(4), "b": {"c": jnp.ones(5), "d": jnp.ones(6)}}
    placed = {"more": 15, "more['b']": 11, "more.b.c": 5, "b": 11, "a": 4}
    for name, elements in placed.items():
        plan = shm.jit(total, "1GiB", host=name).plan(jnp.ones((3, 3)), **given)
        assert plan.before.host_fixed_bytes == 4 * elements
    with pytest.raises(shm.InputError, match=r"has no such array: there are a, b\['c'\], b\['d'\]"):
        shm.jit(total, "1GiB", host="more.z")(jnp.ones((3, 3)), **given)


@pytest.mark.parametrize("host", [0, "", True, ("opt_state", 1), "["])
def test_what_is_no_name_is_an_error(host):
    with pytest.raises(shm.InputError, match="give the name of a parameter of train_step"):
        shm.jit(train_step, "1GiB", host=host)


def test_static_arguments_and_single_numbers_are_left_as_they_are():
    def scaled(x, n, rate):
        return x * n * rate

    step = shm.jit(scaled, "1GiB", host="x", static_argnames="n")
    assert equal(step(np.ones(3, np.float32), 2, 0.5), np.ones(3))
    assert equal(step(np.ones(3, np.float32), n=4, rate=0.5), np.full(3, 2.0))


def test_under_other_transformations_nothing_is_moved():
    squares = shm.jit(lambda x: (x**2).sum(), "1GiB", host="x")
    assert equal(jax.grad(squares)(jnp.ones(3)), np.full(3, 2.0))
    assert equal(jax.vmap(squares)(jnp.ones((2, 3))), np.full(2, 3.0))
    assert equal(jax.jit(squares)(jnp.ones(3)), 3.0)


def test_a_method_and_a_decorator():
    class Model:
        @shm.jit(budget="1GiB", host="state")
        def step(self, state):
            """Docstring."""
            return state + 1

        def __hash__(self):
            return 0

    jax.tree_util.register_static(Model)
    assert kinds(Model().step(jnp.ones(3))) == {"pinned_host"}
    assert Model.step.__doc__ == "Docstring."


def test_lowered_and_compiled_ahead_of_time():
    step = shm.jit(train_step, "1GiB", host="opt_state", donate_argnums=1)
    compiled = step.lower(*specs(4, 16, 2)).compile()
    params, state, x = arguments()
    on_host = jax.tree.map(lambda leaf: placed(leaf) if leaf.ndim else leaf, state)
    assert equal(compiled(params, on_host, x), jax.jit(train_step)(*arguments()))


def test_a_cpu_says_that_nothing_is_gained(caplog):
    step = shm.jit(train_step, "1GiB", host="opt_state", target="cpu")
    with caplog.at_level(logging.WARNING, "stablehlo_mem"):
        plan = step.plan(*arguments())
    message = "the host's memory is the one that a CPU computes in: an argument placed there counts as any other"
    assert caplog.messages == [f"train_step: nothing is gained by arguments in the host's memory: {message}"]
    assert plan.fits
    assert [(r.code, r.message) for r in plan.refusals] == [("placement-ignored", message)]


def test_memory_kinds_of_arguments_are_read_as_jax_reads_them():
    """A jax.jit in a block, and `rescue`, of arrays that were put on the host."""

    def add(x, y):
        return jax.device_put(jax.device_put(x, jax.memory.Space.Device) + y, jax.memory.Space.Host)

    x, y = placed(jnp.ones((256, 256))), jnp.ones((256, 256))
    expected = np.full((256, 256), 2.0)
    with shm.budget("1MiB") as block:
        result = jax.jit(add)(x, y)
    assert (kinds(result), equal(result, expected)) == ({"pinned_host"}, True)
    assert block.plans[0].before.host_fixed_bytes == 2 * 2**18
    rescued = shm.rescue(add, "1MiB")
    rescued.is_needed = True
    assert equal(rescued(x, y), expected)
    assert shm.jit(add, "1MiB").plan(x, y).before.host_fixed_bytes == 2 * 2**18


def test_out_shardings_in_a_block():
    host = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    with shm.budget("1MiB") as block:
        result = jax.jit(lambda x: x + 1, out_shardings=host)(jnp.ones((256, 256)))
    assert (kinds(result), equal(result, np.full((256, 256), 2.0))) == ({"pinned_host"}, True)
    assert block.plans[0].before.host_fixed_bytes == 2**18


def test_in_shardings_of_numpy_arrays():
    device = jax.devices()[0]
    host = SingleDeviceSharding(device, memory_kind="pinned_host")
    total = shm.jit(lambda x: x.sum(), "1MiB", in_shardings=host)
    assert total(np.ones((4, 8), np.float32)) == 32
    assert total.plan(np.ones((4, 8), np.float32)).before.host_fixed_bytes == 4 * 8 * 4


@needs["tpu"]
def test_what_is_placed_is_not_in_the_memory_of_the_device():
    """Both moments are; the update takes one layer of them at a time, so that three layers' bytes are enough."""
    layers, width = 24, 1024
    matrices, layer = layers * width**2 * 4, width**2 * 4
    step = shm.jit(train_step, 2 * matrices + 24 * layer, host="opt_state", donate_argnums=(0, 1), target="tpu:v5e")
    plan = step.plan(*specs(layers, width, 8))
    assert plan.fits
    before, after = plan.before.measured, plan.after.measured
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    assert before.peak_bytes > plan.budget_bytes >= after.peak_bytes
    assert matrices <= after.argument_bytes < matrices + MIB
    assert 2 * matrices <= after.host_fixed_bytes < 2 * matrices + MIB
    assert after.alias_bytes >= matrices


@needs["tpu"]
def test_gradients_wait_on_the_host_for_their_update():
    """With parameters and moments there, less than the gradients is enough: layers are read and updated in turn."""
    layers, width = 12, 4096  # smaller gradients, and those of one layer, stay in the chip's own memory
    gradients = layers * width**2 * 4
    options = shm.Options(host_memory="2GiB")
    step = shm.jit(
        clipped_step,
        gradients // 2,
        host=("params", "opt_state"),
        donate_argnums=(0, 1),
        target="tpu:v5e",
        options=options,
    )
    plan = step.plan(*specs(layers, width, 256, optimiser=CLIPPED))
    assert plan.fits
    assert {step.pass_name for step in plan.steps} >= {"offload-to-host"}
    before, after = plan.before.measured, plan.after.measured
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    assert before.peak_bytes > gradients > plan.budget_bytes >= after.peak_bytes
    assert after.host_temp_bytes >= gradients
    assert 0.9 <= plan.after.temp_bytes / after.temp_bytes <= 1.2
