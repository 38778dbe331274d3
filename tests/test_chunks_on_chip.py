"""Chunks that stay on the chip: what loops spare where a cache or VMEM holds what a step makes and reads again."""

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.cost_model import fused_seconds
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.splitting.chunk_cost import loop_cost
from stablehlo_mem.splitting.step_kernels import step_kernels
from stablehlo_mem.targets.chips import CHIPS
from tests.support import exported, normal, possible_splits, program_of, spec

N = 8192


def twice_sorted(x):
    """Two kernels that no compiler fuses, with a value between them."""
    return jnp.sort(jnp.sort(x, 1)[:, ::-1], 1).sum(1)


def rows(chip):
    module = normal(program_of(twice_sorted, jnp.ones((N, N))))
    graph = entry_graph(module)
    (split,) = [s for s in possible_splits(module, (4 * N * N,)) if s.axis.seed[1] == 0][:1]
    return module, graph, split.schedule, loop_cost(graph, split.schedule, chip, 4 * N * N)


@pytest.mark.parametrize("name", ["cuda:h200", "tpu:v5e"])
def test_a_chunk_that_fits_spares_traffic(name):
    chip = CHIPS[name]
    _module, graph, schedule, _ = rows(chip)
    kernels = step_kernels(graph, schedule, chip)
    largest = chip.on_chip_value_bytes // (4 * N)
    fits, exceeds = (sum(k.spared_seconds(chunk, chip) for k in kernels) for chunk in (largest, largest + 1))
    assert fits > 0
    assert exceeds == 0


def test_a_kernel_spares_no_more_than_it_is_charged():
    """The matmul's kernel takes the maximum of what it writes, and a gather reads a column of it: neither is a pass."""

    def head(x, w, t):
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ w), t[:, None], 1).mean()

    tpu = CHIPS["tpu:v5e"]
    arguments = jnp.ones((4096, 64)), jnp.ones((64, N)), jnp.zeros(4096, jnp.int32)
    module = normal(program_of(head, *arguments))
    graph, nbytes = entry_graph(module), 4 * 4096 * N
    unsplit = sum(fused_seconds(graph, tpu))
    schedules = [s.schedule for s in possible_splits(module, (nbytes,))]
    spared = [sum(k.spared_seconds(1, tpu) for k in step_kernels(graph, schedule, tpu)) for schedule in schedules]
    assert max(spared) > 0
    for schedule, seconds in zip(schedules, spared, strict=True):
        assert seconds < schedule.loop_count * unsplit
        assert all(unsplit + added > 0 for _, added, _ in loop_cost(graph, schedule, tpu, nbytes).chunks())


def test_what_loops_compute_twice_costs_what_it_does_fused():
    """Softmax computes its distances in two loops: they are never written on a GPU."""

    def weights(x, y):
        distances = ((x[:, None] - y[None]) ** 2).sum(2)
        return jax.nn.softmax(-distances, 1).sum(0)

    gpu = CHIPS["cuda:h200"]
    module = normal(program_of(weights, jnp.ones((2048, 32)), jnp.ones((2048, 32))))
    graph, nbytes = entry_graph(module), 4 * 2048**2
    unsplit = sum(fused_seconds(graph, gpu))
    loops = [s.schedule for s in possible_splits(module, (nbytes,)) if s.schedule.loop_count > 1]
    assert loops
    for schedule in loops:
        assert loop_cost(graph, schedule, gpu, nbytes).fixed_seconds <= schedule.loop_count * unsplit


def test_every_kernel_of_a_step_is_started():
    gpu = CHIPS["cuda:h200"]
    _module, graph, schedule, cost = rows(gpu)
    kernels = step_kernels(graph, schedule, gpu)
    assert cost.step_seconds >= len(kernels) * gpu.launch_seconds > 0
    assert step_kernels(graph, schedule, CHIPS["cpu"]) == ()


def test_a_tpu_keeps_the_scores_of_attention_in_vmem():
    """Half of the temporaries would allow chunks of 256 MiB. Those that fit VMEM take half the time."""

    def attention(q, k, v):
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
        return jnp.einsum("hqk,hkd->hqd", jnp.exp(scores - scores.max(-1, keepdims=True)), v)

    program = exported(attention, *[spec(8, 4096, 64)] * 3, platform="tpu")
    profile = shm.profile(program, target="tpu:v5e")
    plan = shm.plan(program, int(0.6 * profile.peak_bytes), target="tpu:v5e")
    assert plan.fits
    assert plan.slowdown < 0.75
    assert plan.after.peak_bytes < profile.peak_bytes / 3
