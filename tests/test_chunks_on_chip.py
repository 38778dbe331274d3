"""Chunks that stay on the chip: what loops spare where a cache or VMEM holds what a step makes and reads again."""

import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
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
