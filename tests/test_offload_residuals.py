"""offload-residuals: values of unrolled layers in the host's memory, with the same results; compiled for a GPU."""

import functools
import re

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import pytest
from jax.export import export
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.analysis.host_link import placements
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes import PASSES
from stablehlo_mem.passes.offload_residuals import OffloadResiduals
from stablehlo_mem.rewriting.hold_copies import hold_copies
from stablehlo_mem.sharding_rules import rule_of
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.devices import topology_devices
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from tests.support import exported, graph_of, normal, normals, program_of, residuals, run, same_bits, spec, text
from tests.test_targets import needs

GIB = 2**30
H200 = CHIPS["cuda:h200"]


def loss(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x.astype(jnp.float32) ** 2).mean()


def gradient(*args):
    return jax.grad(loss)(args[:-1], args[-1])


def arguments(layers=6, rows=32, width=16):
    return *(normals(width, width, seed=i) for i in range(layers)), normals(rows, width, seed=9)


@pytest.mark.parametrize("layers", [3, 4, 6])
def test_computes_the_same_and_leaves_the_device(layers):
    """XLA:CPU ignores in which memory a value is said to be."""
    args = arguments(layers)
    program = program_of(gradient, *args)
    module = normal(program)
    before = find_peak(entry_graph(module), H200)
    best = residuals(entry_graph(module))[-1]
    OffloadResiduals().apply(module, best.step.params)
    assert module.operation.verify()
    attach_rules(module)
    after = find_peak(entry_graph(module), H200)
    assert after.host_bytes == best.saved_bytes > 0
    assert after.temp_bytes < before.temp_bytes
    remove_rules(module)
    hold_copies(module)
    assert module.operation.verify()
    assert text(module).count("optimization_barrier") >= len(best.step.params.values)
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def test_a_value_is_not_offloaded_twice():
    module = normal(program_of(gradient, *arguments()))
    OffloadResiduals().apply(module, residuals(entry_graph(module))[-1].step.params)
    graph = entry_graph(module)
    again = (value for one in residuals(graph) for value in one.step.params.values)
    assert all(graph.ops[graph.values[v].producer].name != "stablehlo.custom_call" for v in again)


def test_copies_to_the_host_and_back_are_not_split():
    module = normal(program_of(gradient, *arguments()))
    OffloadResiduals().apply(module, residuals(entry_graph(module))[-1].step.params)
    attach_rules(module)
    graph = entry_graph(module)
    assert placements(graph)
    assert all(rule_of(graph, op) is None for op in placements(graph))


def test_stays_within_the_host_memory_that_is_allowed():
    graph = graph_of(program_of(gradient, *arguments()))
    value = 32 * 16 * 4
    assert [c.saved_bytes for c in residuals(graph, host=f"{value}B")] == [value]
    assert residuals(graph, host=f"{value - 1}B") == []
    assert residuals(graph, chip="cpu") == []


def test_a_value_that_is_returned_stays():
    def both(*args):
        y = jnp.tanh(args[-1] @ args[0])
        return y, jax.grad(lambda y: loss(args[1:-1], y))(y)

    graph = graph_of(program_of(both, *arguments()))
    offered = {value for one in residuals(graph) for value in one.step.params.values}
    assert offered
    assert not offered & set(graph.returned)


def test_programs_without_such_copies_are_left_as_they_are():
    module = normal(program_of(gradient, *arguments()))
    before = text(module)
    hold_copies(module)
    assert text(module) == before


@needs["cuda"]
def test_layers_wait_in_the_hosts_memory_of_a_gpu():
    """Six layers of 512 MiB; a matmul of 8192 columns takes as long as the link needs for its result."""
    rows, width, layers = 32768, 8192, 6
    specs = [spec(width, width, dtype=jnp.bfloat16)] * layers + [spec(rows, width, dtype=jnp.bfloat16)]
    program = exported(gradient, *specs, platform="cuda")
    budget = int(4.6 * GIB)
    others = tuple(p.name for p in PASSES if p.name != "recompute-residuals")  # which reaches it without the host
    exact = {"numerics": "exact", "max_seconds": 60, "passes": others}
    without = shm.plan(program, budget, target="cuda:h200", options=shm.Options(**exact))
    assert not without.fits
    plan = shm.plan(program, budget, target="cuda:h200", options=shm.Options(host_memory="64GiB", **exact))
    assert plan.fits
    assert "offload-residuals" in {step.pass_name for step in plan.steps}
    before, after = plan.before.measured, plan.after.measured
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    assert before.peak_bytes > budget >= after.peak_bytes
    assert after.host_temp_bytes >= before.peak_bytes - after.peak_bytes
    copies = asynchronous_copies(plan.result)
    assert min(copies) > 1  # at least one kernel runs beside each
    assert len(copies) == 2 * after.host_temp_bytes / (2 * rows * width)


@needs["tpu"]
def test_a_tpu_copies_when_the_forward_pass_is_over():
    """JAX's own policy does not lower the peak of unrolled layers; once it does, the pass may serve TPUs."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["y"], offload_src="device", offload_dst="pinned_host"
    )

    @functools.partial(jax.checkpoint, policy=policy)
    def offloaded(weights, x):
        for w in weights:
            x = jax.ad_checkpoint.checkpoint_name(jnp.tanh(x @ w), "y")
        return (x.astype(jnp.float32) ** 2).mean()

    rows, width, layers = 8192, 1024, 8  # of twice the width libtpu takes four times as long
    specs = [spec(width, width, dtype=jnp.bfloat16)] * layers, spec(rows, width, dtype=jnp.bfloat16)
    (target,) = named_targets("tpu:v5e")
    forms = (jax.grad(lambda weights, x: loss(weights, x)), jax.grad(offloaded))
    programs = [ingest(export(jax.jit(form), platforms=["tpu"])(*specs)) for form in forms]
    plain, by_hand = (target.measure(program, program.module) for program in programs)
    assert by_hand.host_temp_bytes == layers * rows * width * 2
    assert by_hand.temp_bytes >= plain.temp_bytes


def asynchronous_copies(program):
    """For each copy of a compiled program the instructions from its start to its end."""
    on = SingleDeviceSharding(topology_devices(H200, 1)[0])
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=on) for a in program.in_avals]
    lines = jax.jit(program.call).lower(*specs).compile().as_text().splitlines()
    starts = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"\s*%?(copy-start[\w.]*) =", line))}
    done = {m[1]: i for i, line in enumerate(lines) if (m := re.search(r"copy-done\(.*?%(copy-start[\w.]*)\)", line))}
    return [done[name] - start for name, start in starts.items()]
