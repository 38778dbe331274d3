"""offload-to-host: stacks in the host's memory, with the same results; compiled for a GPU and a TPU."""

import dataclasses
import functools

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import pytest
from jax.export import export

import stablehlo_mem as shm
from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.analysis.host_link import placements, waiting_seconds
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal
from stablehlo_mem.passes.offload_to_host import OffloadToHost
from stablehlo_mem.planner.budget_search import BudgetSearch
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.measurement import Measured
from tests.programs.layers import MLP, TRANSFORMER, mlp_gradient, transformer_step
from tests.support import exported, graph_of, normal, normals, offloadable, program_of, run, same_bits, spec
from tests.test_rematerialise import CASES
from tests.test_targets import needs

MIB = 2**20


def candidates(found):
    return [item for item in found if isinstance(item, Candidate)]


def codes(found):
    return {item.code for item in found if isinstance(item, Refusal)}


@pytest.mark.parametrize("name", CASES)
def test_computes_the_same_and_leaves_the_device(name):
    """XLA:CPU ignores in which memory a value is said to be."""
    f, *args = CASES[name]
    program = program_of(f, *args)
    module = normal(program)
    graph = entry_graph(module)
    before, best = find_peak(graph, CHIPS["cuda:h200"]), candidates(offloadable(graph))[-1]
    OffloadToHost().apply(module, best.step.params)
    assert module.operation.verify()
    attach_rules(module)
    after = find_peak(entry_graph(module), CHIPS["cuda:h200"])
    assert after.host_bytes >= best.saved_bytes
    assert after.temp_bytes <= before.temp_bytes - best.saved_bytes / 2  # another op may be at the peak then
    remove_rules(module)
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def layers(h, weights):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w),) * 2, h, weights)


def test_needs_the_option():
    f, *args = CASES["layers"]
    graph = graph_of(program_of(f, *args))
    chip = CHIPS["cuda:h200"]
    goals = [Goal(chip, shm.Options(host_memory=size), 0) for size in (None, "1GiB")]
    without, allowed = (list(OffloadToHost().propose(graph, find_peak(graph, chip), goal)) for goal in goals)
    assert without == []
    assert allowed != []


@pytest.mark.parametrize("share", ["50%", "1%"])
def test_says_that_a_cpu_has_no_other_memory(share):
    """Of scanned layers and of unrolled ones, whether the budget is kept or not."""

    def unrolled(x, w):
        for i in range(3):
            x = jnp.tanh(x @ w[i])
        return (x**2).mean()

    for f in (unrolled, lambda x, w: (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0] ** 2).mean()):
        program = exported(jax.grad(f, (0, 1)), spec(512, 64), spec(3, 64, 64))
        options = (shm.Options(host_memory=size, max_compiles=2, max_slowdown=None) for size in ("1GiB", None))
        allowed, default = (shm.plan(program, share, target="cpu", options=one) for one in options)
        assert allowed.fits == (share == "50%")
        assert "no-host-memory" in {refusal.code for refusal in allowed.refusals}
        assert "no-host-memory" not in {refusal.code for refusal in default.refusals}


def test_stays_within_the_host_memory_that_is_allowed():
    f, *args = CASES["layers"]
    graph = graph_of(program_of(f, *args))
    assert candidates(offloadable(graph, host="1500B"))[-1].saved_bytes <= 1500
    found = offloadable(graph, host="100B")
    assert candidates(found) == []
    assert codes(found) == {"host-memory-full"}


def test_gradients_of_a_scan_wait_for_their_update():
    """The backward loop writes them from the last layer to the first; the update reads two layers at a time."""

    def step(h, weights):
        gradients = jax.grad(lambda weights: (layers(h, weights)[0] ** 2).sum())(weights)

        def update(i, new):
            w, g = (jax.lax.dynamic_slice_in_dim(x, 2 * i, 2) for x in (weights, gradients))
            return jax.lax.dynamic_update_slice_in_dim(new, w - 0.1 * jnp.sign(g) * g**2, 2 * i, 0)

        return jax.lax.fori_loop(0, len(weights) // 2, update, jnp.zeros_like(weights))

    args = normals(8, 64), normals(6, 64, 64)
    program = program_of(step, *args)
    module = normal(program)
    best = candidates(offloadable(entry_graph(module)))[-1]
    assert best.saved_bytes >= 6 * 64 * 64 * 4
    OffloadToHost().apply(module, best.step.params)
    assert module.operation.verify()
    attach_rules(module)
    assert find_peak(entry_graph(module), CHIPS["cuda:h200"]).host_bytes >= 6 * 64 * 64 * 4
    remove_rules(module)
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def test_leaves_a_stack_that_is_used_whole():
    def loss(h, weights):
        final, rows = layers(h, weights)
        return final.sum() + (rows.reshape(-1, 64) @ final).max()

    found = offloadable(graph_of(program_of(loss, normals(64, 64), normals(5, 64, 64))))
    assert candidates(found) == []
    assert "used-whole" in codes(found)


def test_leaves_a_stack_of_which_not_every_row_is_written():
    """The host's memory begins as anything, not as the zeros that are read here."""

    def f(h, count):
        def body(state):
            i, h, rows = state
            return i + 1, jnp.tanh(h) + 1, jax.lax.dynamic_update_index_in_dim(rows, h, i, 0)

        _, _, rows = jax.lax.while_loop(lambda s: s[0] < count, body, (0, h, jnp.zeros((8, *h.shape))))
        return jax.lax.fori_loop(0, 8, lambda i, total: total + rows[i] ** 2, jnp.zeros_like(h))

    assert candidates(offloadable(graph_of(program_of(f, normals(64, 64), 3)))) == []


def test_is_not_done_twice():
    f, *args = CASES["layers"]
    module = normal(program_of(f, *args))
    OffloadToHost().apply(module, candidates(offloadable(entry_graph(module)))[-1].step.params)
    assert candidates(offloadable(entry_graph(module))) == []


def test_copies_run_beside_the_work_that_does_not_wait_for_them():
    f = CASES["layers"][0]
    module = normal(program_of(f, normals(256, 256), normals(4, 256, 256)))
    OffloadToHost().apply(module, candidates(offloadable(entry_graph(module)))[-1].step.params)
    graph = entry_graph(module)
    body = next(op.blocks[1] for op in graph.ops if op.name == "stablehlo.while")
    copies, chip = placements(body), CHIPS["cuda:h200"]
    assert copies
    idle, busy = (waiting_seconds(body, [each] * len(body.ops), chip) for each in (0.0, 1.0))
    assert sum(idle.values()) == pytest.approx(len(copies) * 256 * 256 * 4 / chip.host_link_bytes_per_second)
    assert set(busy) == set(copies)
    assert sum(busy.values()) == 0
    slow = dataclasses.replace(chip, name="slow", host_link_bytes_per_second=1e6)
    assert graph_seconds(graph, slow) > graph_seconds(graph, chip)


def test_a_program_that_offloads_by_hand_is_counted_so():
    """JAX's own policy for the layers' inputs: 5 x 96 x 64 floats."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["h"], offload_src="device", offload_dst="pinned_host"
    )

    @functools.partial(jax.checkpoint, policy=policy)
    def layer(h, w):
        h = jax.ad_checkpoint.checkpoint_name(h, "h")
        return h + jnp.tanh(h @ w) @ w.T, None

    def loss(h, weights):
        return (jax.lax.scan(layer, h, weights)[0] ** 2).sum()

    program = exported(jax.grad(loss, (0, 1)), spec(96, 64), spec(5, 64, 64), platform="cuda")
    graph = graph_of(ingest(program))
    peak = find_peak(graph, CHIPS["cuda:h200"])
    assert peak.host_bytes >= 5 * 96 * 64 * 4
    assert all(graph.values[item.value].shape != (5, 96, 64) for item in peak.live if item.path == ())


@pytest.mark.parametrize("size", [0, -1, "much", "10%", "min", True])
def test_the_option_is_a_number_of_bytes(size):
    with pytest.raises(InputError) as caught:
        shm.plan(exported(jnp.sin, spec(4)), 100, options=shm.Options(host_memory=size))
    assert str(caught.value) == f'host_memory is an int of bytes or a string like "64GiB", not {size!r}'


@needs["cuda"]
def test_keeps_a_budget_that_recomputation_does_not():
    """32 blocks: their inputs, with which recomputation begins, are over the budget, and so are those of segments.

    libtpu takes ten seconds for each compilation: it is asked for the 24 layers below.
    """
    program = exported(mlp_gradient, *MLP, platform="cuda")
    fixed = 2 * 2 * 32 * 2 * 2048 * 8192 + 2 * 4096 * 2048
    budget = fixed + 384 * MIB
    without = shm.plan(program, budget, target="cuda:h200")
    assert not without.fits
    assert "offload-to-host" not in {step.pass_name for step in without.steps}
    plan = shm.plan(program, budget, target="cuda:h200", options=shm.Options(host_memory="1GiB"))
    assert plan.fits
    assert [step.pass_name for step in plan.steps] == ["rematerialise", "swap-dot-operands", "offload-to-host"]
    measured = plan.after.measured
    assert isinstance(measured, Measured)
    assert measured.host_temp_bytes == 512 * MIB
    assert measured.peak_bytes <= budget
    assert "512 MiB in the host's memory" in str(plan)
    assert "host" not in str(without)


@needs["cuda"]
def test_a_budget_that_is_kept_without_the_hosts_memory_is_kept_with_it(monkeypatch):
    """Steps that are taken because the host has room may lead nowhere: here no search that may take them finds any."""
    program = exported(mlp_gradient, *MLP, platform="cuda")
    search = BudgetSearch.evaluations

    def evaluations(self):
        yield from () if self.evaluator.options.host_bytes else search(self)

    monkeypatch.setattr(BudgetSearch, "evaluations", evaluations)
    without, allowed = (
        shm.plan(program, "6GiB", target="cuda:h200", options=shm.Options(host_memory=size)) for size in (None, "1GiB")
    )
    assert without.fits
    assert allowed.fits
    assert allowed.steps == without.steps != ()


@needs["cuda"]
def test_is_not_done_where_recomputation_is_enough():
    program = exported(mlp_gradient, *MLP, platform="cuda")
    plan = shm.plan(program, "6GiB", target="cuda:h200", options=shm.Options(host_memory="1GiB"))
    assert plan.fits
    assert {step.pass_name for step in plan.steps} >= {"rematerialise"}
    assert "offload-to-host" not in {step.pass_name for step in plan.steps}


BY_HAND = [pytest.param("cuda:h200", 1806, marks=needs["cuda"]), pytest.param("tpu:v5e", 1883, marks=needs["tpu"])]


@pytest.mark.parametrize(("target", "by_hand"), BY_HAND)
def test_needs_no_more_than_offloading_by_hand(target, by_hand):
    """24 layers: what `jax.checkpoint` with JAX's offload policy needs (FRONTIER.md), from a plain scan.

    libtpu takes 25 seconds for each program: no more than the first two that are found.
    """
    arguments = 2 * (24 * 12 * 1024**2 + 8 * 1024**2) + 4 * 8 * 1024**2
    plan = shm.plan(
        export(jax.jit(transformer_step, donate_argnums=0), platforms=[target.partition(":")[0]])(*TRANSFORMER),
        arguments + by_hand * MIB,
        target=target,
        options=shm.Options(host_memory="64GiB", max_compiles=3),
    )
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.temp_bytes <= by_hand * MIB
