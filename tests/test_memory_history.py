"""Memory over the program: the drawing agrees with the profile."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import ir, make_ir_context, named_scope, source_line
from stablehlo_mem.reports.phrases import format_source
from stablehlo_mem.results.memory_history import History
from stablehlo_mem.results.memory_profile import profile_module
from stablehlo_mem.targets.chips import CHIPS
from tests.support import program_of, spec


def layers(x, w):
    for _ in range(3):
        x = jax.nn.softmax(x @ w, -1) @ w.T
    return jax.lax.scan(lambda c, row: (jnp.tanh(c @ w[:64, :64] + row), c.sum()), x[:, :64], jnp.ones((5, 64)))


def history_of(fun, *args, chip: str = "cpu") -> tuple[shm.MemoryProfile, History]:
    profile = profile_module(program_of(fun, *args).module, CHIPS[chip])
    assert profile.history is not None
    return profile, profile.history


ARGS = (jnp.ones((256, 128)), jnp.ones((128, 512)))


@pytest.mark.parametrize("chip", ["cpu", "cuda:h200", "tpu:v5e"])
def test_its_highest_point_is_the_peak(chip: str) -> None:
    profile, history = history_of(layers, *ARGS, chip=chip)
    assert max(history.temp_bytes) == profile.temp_bytes
    assert history.fixed_bytes + profile.temp_bytes == profile.static_peak_bytes
    point = history.temp_bytes.index(profile.temp_bytes)
    alive = sorted(b.value.nbytes for b in history.buffers if b.begin <= point <= b.end)
    named = sorted(live.nbytes for live in profile.live)
    assert alive[-1] == named[-1]
    assert history.ops[point] == profile.point.split(" ")[0]


def test_buffers_never_add_up_to_more_than_is_alive() -> None:
    _, history = history_of(layers, *ARGS)
    for point, nbytes in enumerate(history.temp_bytes):
        assert sum(b.value.nbytes for b in history.buffers if b.begin <= point <= b.end) <= nbytes


def test_loops_have_their_steps_and_lines() -> None:
    _, history = history_of(layers, *ARGS)
    (loop,) = history.loops
    assert (loop.steps, loop.depth) == (5, 0)
    assert 0 < loop.begin < loop.end < len(history.ops)
    assert "test_memory_history.py" in loop.source


def test_loops_in_loops_are_deeper() -> None:
    def nested(x):
        return jax.lax.fori_loop(0, 4, lambda _, a: jax.lax.fori_loop(0, 3, lambda _, b: jnp.sin(b) @ b, a), x)

    _, history = history_of(nested, jnp.ones((64, 64)))
    assert [loop.depth for loop in history.loops] == [0, 1]
    outer, inner = history.loops
    assert outer.begin <= inner.begin <= inner.end <= outer.end


def test_a_long_program_keeps_its_peak_in_a_thousand_points() -> None:
    def long(x):
        y = x
        for i in range(1500):
            x = jnp.sort(x * i)
        return x @ y

    profile, history = history_of(long, jnp.ones((32, 32)))
    assert len(history.ops) == len(history.temp_bytes) <= 1000
    assert max(history.temp_bytes) == profile.temp_bytes
    assert all(0 <= b.begin <= b.end < len(history.ops) for b in history.buffers)
    for point, nbytes in enumerate(history.temp_bytes):
        assert sum(b.value.nbytes for b in history.buffers if b.begin <= point <= b.end) <= nbytes


def test_a_program_that_keeps_nothing_has_a_flat_history() -> None:
    profile, history = history_of(lambda x: x + 1, jnp.ones(8))
    assert profile.temp_bytes == 0
    assert set(history.temp_bytes) == {0}
    assert history.buffers == ()


def test_a_profile_is_printed_as_a_page() -> None:
    made = shm.profile(lambda x: jnp.sin(x) @ x, spec(64, 64), target="cpu")
    assert "Memory of one execution" in str(made)
    assert "measured" in str(made)


@pytest.mark.parametrize(
    ("source", "scope"),
    [
        ("a.py:3 (jit(f)/layer/mlp/dot_general)", "layer/mlp"),
        ("a.py:3 (jit(f)/transpose(jvp(Model))/Dense_0/jit(gelu)/mul)", "Model/Dense_0"),
        ("a.py:3 (jit(f)/jvp()/while/body/closed_call/checkpoint/rematted_computation/mlp/tanh)", "mlp"),
        ("a.py:3 (jit(f)/vmap(transpose(jvp(heads)))/cond/branch_1_fun/layer(1)/mul)", "heads/layer(1)"),
        ("a.py:3 (jit(f)/jvp(a/b)/hqd,hkd->hqk/dot_general)", "a/b"),
        ("a.py:3 (jit(f)/transpose(jvp())/add_any)", ""),
        ("a.py:3 (split-into-loops)", ""),
        ("a.py:3", ""),
        ("", ""),
    ],
)
def test_a_scope_is_what_the_user_named(source: str, scope: str) -> None:
    assert named_scope(source) == scope


def test_points_and_buffers_have_their_scopes_in_gradients_of_loops_too() -> None:
    def loss(w, x):
        def layer(x, w):
            with jax.named_scope("mlp"):
                return jnp.tanh(jnp.einsum("ab,bc->ac", x, w)), None

        with jax.named_scope("encoder"):
            return jax.lax.scan(jax.checkpoint(layer), x, w)[0].sum()

    _, history = history_of(jax.grad(loss), jnp.ones((3, 256, 256)), jnp.ones((256, 256)))
    assert len(history.scopes) == len(history.ops)
    assert set(history.scopes) == {"", "encoder", "encoder/mlp"}
    scopes = {named_scope(buffer.value.source) for buffer in history.buffers if buffer.value.op_name == "dot_general"}
    assert scopes == {"encoder/mlp"}


PACKAGES = "/env/lib/python3.12/site-packages"
OF_JAX, OF_FLAX, OF_KERAS = (f"{PACKAGES}/{file}" for file in ("jax/_src/numpy.py", "flax/linear.py", "keras/dense.py"))


@pytest.mark.parametrize(
    ("frames", "shown"),
    [
        ([OF_JAX, OF_FLAX, "/me/model.py", "/me/train.py"], "/me/model.py"),
        ([OF_JAX, OF_KERAS], "keras/dense.py"),
        ([OF_JAX], "jax/_src/numpy.py"),
    ],
    ids=["a layer of the user's", "no frame of the user's", "jax alone"],
)
def test_lines_are_the_users_own_where_there_are_any(frames, shown):
    """The innermost first, as in a call site."""
    with make_ir_context():
        files = [ir.Location.file(frame, 7, 1) for frame in frames]
        position = ir.Location.callsite(files[0], files[1:]) if len(files) > 1 else files[0]
        source = source_line(ir.Location.name("jit(step)/dot_general", position))
    assert format_source(source).startswith(f"{shown}:7 (")
    assert format_source(f"reduce at {source}").startswith(f"reduce at {shown}:7 (")
