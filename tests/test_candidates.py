"""What a block proposes: nothing that is kept from one search to the next changes what the next one is told."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.ir.bindings import clone_module, fingerprint
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.planner.greedy_search import propose
from stablehlo_mem.planner.search_state import apply, start_of
from stablehlo_mem.splitting.candidates import proposals
from stablehlo_mem.splitting.split_step import split
from stablehlo_mem.targets.chips import CHIPS
from tests.support import normal, program_of


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T) @ v


def norms(x, y):
    """One matmul and what is made of it: from large values its axes reach as far as from all."""
    z = x @ y.T
    return (z * z).sum(1), abs(z).max(1)


PROGRAMS = [(attention, ((512, 16),) * 3), (jax.grad(lambda *a: attention(*a).sum()), ((512, 16),) * 3)]
PROGRAMS += [(norms, ((512, 16), (512, 16)))]
GOAL = Goal(CHIPS["cpu"], Options(), 100_000)


def module_of(case):
    function, shapes = case
    return normal(program_of(function, *(np.ones(shape, np.float32) for shape in shapes)))


def candidates(graph, goal):
    peak = find_peak(graph, goal.chip)
    return [c for c in proposals(graph, (), peak, goal) if isinstance(c, Candidate)]


@pytest.mark.parametrize("case", PROGRAMS, ids=["attention", "gradient", "norms"])
def test_a_goal_is_answered_alike_whatever_was_asked_before(case):
    module = module_of(case)
    goals = [
        dataclasses.replace(GOAL, temp_bytes=temp_bytes, include_small_values=far)
        for temp_bytes, far in itertools.product((GOAL.temp_bytes, 20_000), (False, True))
    ]
    asked = entry_graph(module)
    sizes = set()
    for goal in goals:
        found = candidates(asked, goal)
        assert found == candidates(entry_graph(module), goal) != []
        sizes |= {c.step.params.chunk for c in found}
    assert len(sizes) > 1


@pytest.mark.parametrize("case", PROGRAMS, ids=["attention", "gradient", "norms"])
def test_candidates_of_one_effect_lead_to_one_module(case):
    module = module_of(case)
    graph = entry_graph(module)
    found = [c for far in (False, True) for c in candidates(graph, dataclasses.replace(GOAL, include_small_values=far))]
    by_effect: dict[object, list[Candidate]] = {}
    for one in found:
        size = min(one.sizes, key=lambda size: (size.params.chunk, size.params.kept))
        by_effect.setdefault(one.dedup_key, []).append(one.resized(size))
    modules: dict[object, set[str]] = {}
    for effect, ones in by_effect.items():
        for one in ones:
            copy = clone_module(module)
            split(copy, one.step.params)
            modules.setdefault(effect, set()).add(fingerprint(copy))
    assert all(len(prints) == 1 for prints in modules.values())
    assert any(len({c.step.params.big_bytes for c in ones}) > 1 for ones in by_effect.values())
    if len(by_effect) > 1:
        assert len(set.union(*modules.values())) == len(by_effect)


def features(x, kernel):
    """A convolution whose features are the innermost dimension, and what is made of them one by one."""
    dims = jax.lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    y = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=dims))
    return (y - y.mean((0, 1, 2))) ** 2 @ jnp.ones(y.shape[-1])


def test_a_split_of_features_costs_what_was_estimated():
    """Convolutions of few features pack as much, and rows of few elements are not vectorised, before and after."""
    program = program_of(features, np.ones((16, 32, 32, 8), np.float32), np.ones((3, 3, 8, 64), np.float32))
    goal = Goal(CHIPS["cpu"], Options(), 100_000)
    state = start_of(program, goal)
    split_features = next(c for c in propose(state, goal)[0] if c.summary.endswith("along dimension 3"))
    for size in split_features.sizes:
        added = apply(state, split_features.resized(size), goal).seconds - state.seconds
        assert size.added_seconds > 0
        assert added == pytest.approx(size.added_seconds, rel=0.1)
