"""The descent by price: several cheap steps before one that saves as much for more time."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.planner import discrepancy_search
from stablehlo_mem.planner.density_descent import density_descent
from stablehlo_mem.planner.greedy_search import greedy_descent
from stablehlo_mem.planner.search_state import start
from tests.support import exported, normal
from tests.test_greedy_search import goal_of


def gradients(layers, head, x, y):
    """Of unrolled layers and a loss over a vocabulary: two peaks, one in what the layers keep, one in the logits."""

    def loss(layers, head):
        h = x
        for up, down in layers:
            h = h + jnp.tanh(h @ up) @ down
        z = (h @ head).astype(jnp.float32)
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]).mean()

    return jax.grad(loss, (0, 1))(layers, head)


@pytest.fixture(scope="module")
def program():
    floats = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)  # noqa: E731
    layers = [(floats(256, 1024), floats(1024, 256))] * 4
    numbers = jax.ShapeDtypeStruct((16, 512), jnp.int32)
    return ingest(exported(gradients, layers, floats(256, 16384), floats(16, 512, 256), numbers, platform="cuda"))


@pytest.fixture(scope="module")
def root(program):
    return start(normal(program), goal_of(0, chip="cuda:h200"))


@pytest.mark.parametrize("share", [0.1, 0.07])
def test_cheap_steps_first(root, share):
    """Micro-batches of the whole step come lowest; the loss in chunks and what the layers keep cost less than half."""
    goal = dataclasses.replace(
        goal_of(int(share * root.peak.temp_bytes), chip="cuda:h200"), max_seconds=3 * root.seconds
    )
    visited = []
    path = density_descent(root, goal, visited.append)
    lowest_first, _ = greedy_descent(root, goal, frozenset())
    assert path[1:] == visited
    assert len(visited) > 1
    assert path[-1].peak.temp_bytes <= goal.temp_bytes
    assert lowest_first.peak.temp_bytes <= goal.temp_bytes
    assert path[-1].seconds < 0.7 * lowest_first.seconds


def test_large_programs_descend_by_price_too(root, monkeypatch):
    """First of all, where there are few steps for other descents."""
    monkeypatch.setattr(discrepancy_search, "_MAX_OPS_TIMES_STEPS", 0)
    goal = goal_of(int(0.1 * root.peak.temp_bytes), chip="cuda:h200")
    visited = []
    found, refusals = discrepancy_search.search(root, goal, visit=visited.append)
    path = density_descent(root, goal, lambda _: None)[1:]
    assert not refusals
    assert [state.steps for state in visited[: len(path)]] == [state.steps for state in path]
    assert found.seconds <= path[-1].seconds


@pytest.mark.parametrize("share", [0.85, 0.5])
def test_a_descent_that_ends_far_from_the_goal_is_followed_by_another(root, monkeypatch, share):
    """One that ends near it is taken as it is, with what stands in the way: the goal is an estimate."""
    monkeypatch.setattr(discrepancy_search, "_MAX_OPS_TIMES_STEPS", 0)
    monkeypatch.setattr(discrepancy_search, "density_descent", lambda state, goal, visit: [state])
    goal = goal_of(int(share * root.peak.temp_bytes), chip="cuda:h200")
    found, refusals = discrepancy_search.search(root, goal)
    assert (found is root) == (share == 0.85)
    assert bool(refusals) == (share == 0.85)
    assert root.peak.temp_bytes > goal.temp_bytes


def test_nothing_helps_within_the_limit_of_time(root):
    goal = dataclasses.replace(goal_of(0, chip="cuda:h200"), max_seconds=root.seconds / 1000)
    assert density_descent(root, goal, lambda _: None) == [root]
