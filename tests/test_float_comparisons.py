"""What is compared with floats computed elsewhere is rounded as they are."""

import jax
import jax.numpy as jnp
import numpy as np

import stablehlo_mem as shm
from stablehlo_mem.frontend.canonicalize import attach_rules
from stablehlo_mem.ir.graph import entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.passes.matmul_chain import MatmulChain
from stablehlo_mem.rewriting.rewriting_pass import Match, block_paths, why_left_alone
from tests.support import apply_split, exported, normal, normals, possible_splits, program_of, rewrite, run


def largest(x, a, b):
    """The gradient asks which elements are equal to the maximum of their column."""
    return jax.grad(lambda x: jnp.max(jnp.tanh(x) @ a @ b, axis=0).sum())(x)


ARGS = normals(24, 32), normals(32, 48), normals(48, 1)


def chains(main):
    """Where the product could be taken in another order, and whether that would unsettle a comparison."""
    one = MatmulChain()
    found = []
    for path in block_paths(main):
        graph = nested_graph(main, path)
        for op in graph.ops:
            match = one.match(graph, op.index, prefer_memory=True) if op.name in one.roots else None
            if isinstance(match, Match):
                found.append((path, op.index, bool(why_left_alone(main, path, match, Options()))))
    return found


def in_several_loops(module):
    """The columns' maxima found by one loop, and compared with in another."""
    possible = next(p for p in possible_splits(module) if p.schedule.loop_count > 1 and p.axis.n == 24)
    split = apply_split(module, possible, 6)
    attach_rules(split)
    return split


def test_a_product_compared_with_its_own_maximum_may_be_reordered():
    module = normal(program_of(largest, *ARGS))
    assert chains(entry_graph(module))
    assert not any(unsettled for *_, unsettled in chains(entry_graph(module)))


def test_one_of_several_loops_that_compute_it_must_not():
    program = program_of(largest, *ARGS)
    module = normal(program)
    split = in_several_loops(module)
    unsettled = {path for path, _, unsettled in chains(entry_graph(split)) if unsettled}
    assert len(unsettled) > 1, "the loop that finds the maximum, and one that compares"
    count = rewrite(split, MatmulChain(), prefer_memory=True)
    assert count, "reordered everywhere, by force, it is as consistent as before"
    (new,), (old,) = run(program, split, *ARGS), run(program, module, *ARGS)
    np.testing.assert_allclose(new, old, rtol=1e-4)


def test_nothing_is_asked_where_nothing_is_compared():
    module = normal(program_of(lambda x, a, b: x @ a @ b, *ARGS))
    assert not any(unsettled for *_, unsettled in chains(entry_graph(module)))


def accepted(key, x, weights):
    """A sampler's step: it accepts by comparing an energy, a sum over all pairs, with a random number."""

    def energy(w):
        return -jnp.sum(jnp.exp(-((x[:, None] - x) ** 2) * w))

    proposal = weights + 0.1 * jax.random.normal(key, ())
    old, new = energy(weights), energy(proposal)
    return jnp.where(jnp.log(jax.random.uniform(key)) < old - new, proposal, weights), old, new


SAMPLER = jax.random.PRNGKey(0), normals(1024), np.float32(1)


def test_an_order_of_floats_is_kept_as_it_was_rounded():
    plan = shm.plan(exported(accepted, *SAMPLER), "512KiB", target="cpu")
    assert not plan.fits
    assert any(r.code == "compared" and "numerics='relaxed'" in r.message for r in plan.refusals), plan.refusals


def test_with_relaxed_numerics_it_may_be_decided_by_other_roundings():
    small = shm.jit(accepted, "512KiB", options=shm.Options(numerics="relaxed"))
    plan = small.plan(*SAMPLER)
    assert plan.before.peak_bytes > 2**19 >= plan.after.peak_bytes, "it was over the budget, and is not"
    for planned, plain in zip(small(*SAMPLER), accepted(*SAMPLER), strict=True):
        np.testing.assert_allclose(planned, plain, rtol=1e-5)


def test_an_equality_of_floats_is_kept_with_relaxed_numerics_too():
    split = in_several_loops(normal(program_of(largest, *ARGS)))
    main, relaxed = entry_graph(split), Options(numerics="relaxed")
    unsettled = [(path, op) for path, op, compared in chains(main) if compared]
    one = MatmulChain()
    for path, op in unsettled:
        match = one.match(nested_graph(main, path), op, prefer_memory=True)
        assert why_left_alone(main, path, match, relaxed)
    assert unsettled
