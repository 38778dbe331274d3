"""`Plan.check`: right plans pass, wrong ones fail and name the result, and what cannot be checked says why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.ir.bindings import module_bytes, parse_module
from stablehlo_mem.targets import execution
from stablehlo_mem.targets.execution import Place
from tests.support import exported, normals, spec

BUDGET = "1MiB"
"""A quarter of what a thousand by a thousand numbers take."""


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T / 4) @ v


def kernel(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)).sum(1)


def neighbours(x: jax.Array, y: jax.Array) -> dict[str, Any]:
    distances = ((x[:, None] - y[None]) ** 2).sum(-1)
    near, which = jax.lax.top_k(-distances, 3)
    return {"nearest": distances.argmin(1), "near": (near, which), "any": (distances < 1).any(1)}


def scattered(x: jax.Array, i: jax.Array) -> jax.Array:
    messages = jax.nn.relu(x[i] @ jnp.ones((16, 64), x.dtype))
    return jnp.zeros((50, 64), x.dtype).at[i % 50].add(messages)


def with_random(x: jax.Array, key: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ x.T + 0.01 * jax.random.normal(key, (1000, 1))) @ x


POINTS = (spec(1000, 8), spec(1000, 8))
TEXTS: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention, (spec(1000, 16),) * 3),
    "kernel": (kernel, POINTS),
    "scatter": (scattered, (spec(10000, 16), spec(10000, dtype=np.int32))),
    "bf16": (attention, (spec(1000, 16, dtype=jnp.bfloat16),) * 3),
    "f16 kernel": (kernel, (spec(1000, 8, dtype=np.float16),) * 2),
    "random": (with_random, (spec(1000, 16), jax.eval_shape(jax.random.key, 0))),
    "whole numbers": (lambda x, y: (x[:, None] * y[None]).sum(1), (spec(1000, dtype=np.int32),) * 2),
    "complex": (lambda x, y: (x[:, None] * y[None]).sum(1), (spec(700, dtype=np.complex64),) * 2),
    "solve": (lambda a: jnp.linalg.cholesky(a @ a.T + 9 * jnp.eye(100)) @ a, (spec(100, 100),)),
}


def small(fun: Callable[..., Any], *specs: Any, budget: Any = "min", **options: Any) -> shm.Plan:
    return shm.plan(exported(fun, *specs), budget, target="cpu", options=shm.Options(**options))


@pytest.fixture(scope="module")
def text_plan() -> shm.Plan:
    """Of a kernel's text, split with a ragged last chunk."""
    text = exported(kernel, *POINTS).mlir_module()
    plan = shm.plan(text, BUDGET, target="cpu")
    assert plan.steps
    return plan


@pytest.fixture(scope="module")
def neighbours_plan() -> shm.Plan:
    """Of several results."""
    plan = shm.plan(exported(neighbours, *POINTS).mlir_module(), BUDGET, target="cpu")
    assert plan.steps
    return plan


@pytest.mark.parametrize("name", TEXTS)
def test_right_plans_pass(name: str) -> None:
    fun, specs = TEXTS[name]
    plan = small(fun, *specs, max_compiles=4)
    assert plan.steps or name == "solve"
    check = plan.check()
    assert check.ok
    assert check.no_float64 == ""
    assert check.where == "the CPU"
    assert check.arguments == "drawn, seed 0"


def test_results_have_the_names_and_types_that_the_program_gives_them(neighbours_plan: shm.Plan) -> None:
    check = neighbours_plan.check()
    assert {result.path: (result.dtype, result.shape) for result in check.results} == {
        "result['any']": ("bool", (1000,)),
        "result['near'][0]": ("float32", (1000, 3)),
        "result['near'][1]": ("int32", (1000, 3)),
        "result['nearest']": ("int32", (1000,)),
    }
    near = check.results[1]
    assert near.original_from_f64 is not None
    assert near.new_from_f64 is not None
    assert 0 < near.new_from_f64 <= near.limit < 1e-4
    assert not near.is_exact
    assert check.results[2].is_exact


def test_ties_of_equal_values_are_held_to_the_same_index(neighbours_plan: shm.Plan) -> None:
    x, y = np.round(normals(1000, 8)), np.tile(np.round(normals(500, 8)), (2, 1))
    assert neighbours_plan.check(x, y).ok


@pytest.mark.parametrize("numerics", ["exact", "relaxed"])
def test_plans_of_all_numerics_pass(numerics: Any) -> None:
    plan = small(neighbours, *POINTS, budget=BUDGET, numerics=numerics)
    assert plan.check(seed=3).ok


@pytest.mark.parametrize("kind", ["text", "bytecode", "module", "artifact", "serialized"])
def test_every_kind_of_program_is_checked(kind: str) -> None:
    one = exported(kernel, *POINTS)
    module = parse_module(one.mlir_module())
    given = {
        "text": one.mlir_module(),
        "bytecode": module_bytes(module),
        "module": module,
        "artifact": one.mlir_module_serialized,
        "serialized": bytes(one.serialize()),
    }[kind]
    check = shm.plan(given, BUDGET, target="cpu").check(normals(1000, 8), normals(1000, 8, seed=1))
    assert check.ok
    assert check.arguments == "given"


def test_double_precision_is_compared_with_the_original() -> None:
    with jax.enable_x64(True):
        plan = small(kernel, *(spec(1000, 8, dtype=np.float64),) * 2, budget="2MiB")
        assert plan.steps
        check = plan.check()
    assert "computes in float64 itself" in check.no_float64
    (result,) = check.results
    assert result.new_from_f64 is None
    assert 0 < result.limit < 1e-4
    assert result.from_original < 1e-11
    assert "float64 cannot be had" in str(check)


# What is wrong ------------------------------------------------------------------------------------------------------


def altered(plan: shm.Plan, old: str, new: str) -> shm.Plan:
    assert old in plan.result
    return dataclasses.replace(plan, result=plan.result.replace(old, new))


def test_a_wrong_constant_is_found(text_plan: shm.Plan) -> None:
    wrong = altered(text_plan, "stablehlo.exponential", "stablehlo.tanh")
    with pytest.raises(shm.CheckError, match=r"does not compute what the original does .*: result off by ") as caught:
        wrong.check()
    assert not caught.value.check.ok
    assert isinstance(caught.value, shm.StableHLOMemError)
    assert "WRONG: 1 of 1 results" in str(caught.value.check)


def test_a_wrong_last_row_of_a_ragged_chunk_is_found(text_plan: shm.Plan) -> None:
    last = next(start for start in range(999, 0, -1) if f"dense<{start}> : tensor<i32>" in text_plan.result)
    assert 1000 % (1000 - last)
    wrong = altered(text_plan, f"dense<{last}> : tensor<i32>", f"dense<{last - 1}> : tensor<i32>")
    x, y = normals(1000, 8), normals(1000, 8, seed=1)
    assert text_plan.check(x, y).ok
    with pytest.raises(shm.CheckError, match="result off by"):
        wrong.check(x, y)


def test_a_small_error_of_one_element_in_a_million_is_found() -> None:
    plan = shm.plan(exported(lambda x: x * 2 + 1, spec(1024, 1024)).mlir_module(), None, target="cpu")
    wrong = dataclasses.replace(
        plan,
        result=exported(lambda x: (x * 2 + 1).at[-1, -1].multiply(1.00001), spec(1024, 1024)).mlir_module(),
    )
    assert plan.check(np.ones((1024, 1024), np.float32)).ok
    with pytest.raises(shm.CheckError, match="result off by 3e-05, from float64, more than 3e-06"):
        wrong.check(np.ones((1024, 1024), np.float32))


def test_only_the_wrong_one_of_several_results_is_named(neighbours_plan: shm.Plan) -> None:
    def wrong(x: jax.Array, y: jax.Array) -> dict[str, Any]:
        found = neighbours(x, y)
        return {**found, "nearest": found["nearest"].at[7].add(1)}

    broken = dataclasses.replace(neighbours_plan, result=exported(wrong, *POINTS).mlir_module())
    with pytest.raises(shm.CheckError, match=r"result\['nearest'\] 1 of 1,000 elements differ$") as caught:
        broken.check()
    assert [result.ok for result in caught.value.check.results] == [True, True, True, False]


def test_a_tie_that_goes_to_another_index_is_found() -> None:
    plan = shm.plan(exported(lambda x: x.argmin(1), spec(100, 8)).mlir_module(), None, target="cpu")
    other = exported(lambda x: 7 - x[:, ::-1].argmin(1), spec(100, 8)).mlir_module()
    ties = np.tile(normals(100, 4), (1, 2))
    assert dataclasses.replace(plan, result=other).check(normals(100, 8)).ok
    with pytest.raises(shm.CheckError, match="100 of 100 elements differ"):
        dataclasses.replace(plan, result=other).check(ties)


def test_near_ties_are_undecided() -> None:
    def nearest(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.top_k(-((x[:, None] - y[None]) ** 2).sum(-1), 20)[1]

    def by_matmul(x: jax.Array, y: jax.Array) -> jax.Array:
        products = jnp.matmul(x, y.T, precision="highest")
        return jax.lax.top_k(2 * products - (x**2).sum(1)[:, None] - (y**2).sum(1), 20)[1]

    specs = (spec(3000, 8),) * 2
    plan = shm.plan(exported(nearest, *specs), None, target="cpu")
    check = dataclasses.replace(plan, result=exported(by_matmul, *specs)).check()
    assert check.results[0].undecided > 0
    assert "undecided" in str(check)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (lambda x: jnp.where(x > 0.5, jnp.inf, x), "has other infinities or NaNs in"),
        (lambda x: jnp.where(x > 0.6, jnp.nan, x), "has other infinities or NaNs in"),
        (lambda x: jnp.where(x > 0.4, jnp.nan, x), "has other infinities or NaNs in"),
        (lambda x: jnp.where(x > 0.5, jnp.nan, x).astype(jnp.bfloat16), "bfloat16"),
    ],
)
def test_nans_are_where_the_original_has_them(wrong: Callable[..., Any], fault: str) -> None:
    plan = shm.plan(exported(lambda x: jnp.where(x > 0.5, jnp.nan, x), spec(100)).mlir_module(), None, target="cpu")
    check = plan.check()
    assert 0 < check.results[0].not_finite < 1
    assert "are infinite or not a number, in the original too" in str(check)
    with pytest.raises(shm.CheckError, match=fault):
        dataclasses.replace(plan, result=exported(wrong, spec(100)).mlir_module()).check()


def test_without_float64_the_original_is_the_measure_and_the_report_says_why() -> None:
    def bits(x: jax.Array) -> jax.Array:
        return jnp.nextafter(x, 1.0) * 2

    plan = shm.plan(exported(bits, spec(100)).mlir_module(), None, target="cpu")
    check = plan.check()
    assert check.no_float64.startswith("stablehlo.bitcast_convert of tensor<100xf32> at ")
    assert "test_plan_check.py" in check.no_float64
    assert check.results[0].new_from_f64 is None
    for factor, ok in ((1.00001, True), (1.001, False)):
        other = exported(lambda x, factor=factor: bits(x) * factor, spec(100)).mlir_module()
        broken = dataclasses.replace(plan, result=other)
        if ok:
            assert broken.check().ok
        else:
            with pytest.raises(shm.CheckError, match="from the original, more than"):
                broken.check()


# Arguments ----------------------------------------------------------------------------------------------------------


def test_arguments_are_taken_as_the_program_takes_them() -> None:
    def fun(points: dict[str, jax.Array], *, scale: jax.Array, unused: jax.Array) -> jax.Array:
        return kernel(points["x"], points["y"]) * scale

    specs = {"x": POINTS[0], "y": POINTS[1]}
    one = jax.export.export(jax.jit(fun), platforms=["cpu"])(specs, scale=spec(), unused=spec(3))
    plan = shm.plan(one, BUDGET, target="cpu")
    x, y, unused = normals(1000, 8), normals(1000, 8, seed=1), np.ones(3, np.float32)
    by_name = plan.check({"x": x, "y": y}, scale=2.0, unused=unused)
    assert by_name.results == plan.check(x, y, np.float32(2), unused).results
    with pytest.raises(shm.InputError, match="the arguments are"):
        plan.check({"x": x, "z": y}, scale=2.0, unused=unused)
    with pytest.raises(shm.InputError, match=r"argument 0 is float32\[1000,7\], the program takes float32\[1000,8\]"):
        plan.check(x[:, :7], y, np.float32(2), unused)
    with pytest.raises(shm.InputError, match="3 arrays are given, the program takes 4"):
        plan.check(x, y, unused)
    with pytest.raises(shm.InputError, match=r"argument 0 is int"):
        plan.check(x.astype(np.int32), y, np.float32(2), unused)


def test_keys_are_given_as_keys() -> None:
    plan = small(with_random, spec(1000, 16), jax.eval_shape(jax.random.key, 0), budget=BUDGET)
    assert plan.check(normals(1000, 16), jax.random.key(1)).ok
    with pytest.raises(shm.InputError, match=r"give a key of jax\.random\.key"):
        plan.check(normals(1000, 16), np.zeros(2, np.uint32))


def test_plans_of_jit_are_checked() -> None:
    fast = shm.jit(kernel, budget=BUDGET, target="cpu")
    x, y = normals(1000, 8), normals(1000, 8, seed=1)
    assert fast.plan(x, y).check(x, y).ok
    assert fast.plan(x, y).check().ok


def test_symbolic_dimensions_are_checked_at_their_sizes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    points = jax.ShapeDtypeStruct((n, 8), np.float32)
    plan = shm.plan(exported(kernel, points, points), BUDGET, target="cpu", dims={"n": 1000})
    assert plan.check(normals(1000, 8), normals(1000, 8)).ok


def test_nothing_is_donated() -> None:
    one = jax.export.export(jax.jit(lambda x: x * 2, donate_argnums=0), platforms=["cpu"])(spec(100))
    x = jnp.ones(100)
    assert shm.plan(one, None, target="cpu").check(x).ok
    assert not x.is_deleted()


# Where it runs ------------------------------------------------------------------------------------------------------


def test_a_chip_that_is_not_here_is_stood_in_for_by_the_cpu() -> None:
    pytest.importorskip("libtpu")
    one = exported(kernel, *POINTS, platform="tpu")
    check = shm.plan(one, None, target="tpu:v5e").check()
    assert check.where == "the CPU"
    assert check.why == "this machine has no tpu device"


def test_several_platforms_are_checked_where_it_is_possible() -> None:
    one = jax.export.export(jax.jit(kernel), platforms=["tpu", "cpu"])(*POINTS)
    plan = shm.plan(one.mlir_module_serialized, BUDGET, target="cpu")
    plan = dataclasses.replace(plan, target=("tpu:v5e", "cpu"))
    assert plan.check().why == "this machine has no tpu device"


def test_a_device_too_small_gives_way_to_the_host(text_plan: shm.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        device_kind = "Pocket Accelerator"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 10 * 2**20, "bytes_in_use": 8 * 2**20}

    class SmallPlace(Place):
        def needed_bytes(self, wrapped: Any) -> int:
            return 4 * 2**20 if self.platform == "cuda" else super().needed_bytes(wrapped)

    monkeypatch.setattr(
        "stablehlo_mem.checking.plan_check.local_devices",
        lambda platform: [Small()] if platform == "cuda" else jax.devices("cpu"),
    )
    monkeypatch.setattr("stablehlo_mem.checking.plan_check.Place", SmallPlace)
    check = dataclasses.replace(text_plan, target=("cuda:h200",)).check()
    assert check.where == "the CPU"
    assert check.why.endswith("are needed on Pocket Accelerator, where 2 MiB are free")


def test_no_room_anywhere_is_an_error_that_says_what_is_needed(
    text_plan: shm.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "host_free_bytes", lambda: 2**20)
    with pytest.raises(shm.InputError, match=r"MiB are needed on the CPU, where 1 MiB are free"):
        text_plan.check()


def test_float64_without_room_is_done_without(text_plan: shm.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "host_free_bytes", lambda: 20 * 2**20)
    monkeypatch.setattr(Place, "needed_bytes", lambda _, wrapped: _wide_bytes(wrapped))
    check = text_plan.check()
    assert check.ok
    assert check.no_float64.startswith("40 MiB are needed on the CPU")


def _wide_bytes(wrapped: jax.export.Exported) -> int:
    return 40 * 2**20 if wrapped.out_avals[0].dtype == np.float64 else 4 * 2**20


def test_free_memory_is_known() -> None:
    free = execution.host_free_bytes()
    assert free is None or 2**20 < free < 2**50


def test_what_only_runs_elsewhere_is_an_error() -> None:
    text = """
    func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %0 = stablehlo.custom_call @some_kernel(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }"""
    plan = dataclasses.replace(
        shm.plan("func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> { return %x : tensor<8xf32> }", None),
        result=text,
    )
    with pytest.raises(shm.InputError, match="the CPU does not run the program"):
        plan.check()


def test_a_plan_without_its_program_is_an_error(text_plan: shm.Plan) -> None:
    alone = dataclasses.replace(text_plan, before=dataclasses.replace(text_plan.before, origin=None))
    with pytest.raises(shm.InputError, match="does not know its program"):
        alone.check()


def test_what_draws_other_numbers_every_time_is_an_error() -> None:
    text = """
    func.func public @main(%x: tensor<f32>) -> tensor<2xf32> {
      %s = stablehlo.constant dense<2> : tensor<1xi64>
      %0 = stablehlo.rng %x, %x, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    with pytest.raises(shm.InputError, match=r"stablehlo\.rng, which draws other numbers in every run"):
        shm.plan(text, None, target="cpu").check()


def test_programs_of_several_devices_are_an_error(text_plan: shm.Plan) -> None:
    assert text_plan.before.origin is not None
    several = dataclasses.replace(exported(kernel, *POINTS), nr_devices=4)
    origin = dataclasses.replace(text_plan.before.origin, program=several)
    plan = dataclasses.replace(text_plan, before=dataclasses.replace(text_plan.before, origin=origin))
    with pytest.raises(shm.InputError, match="programs of one device, not of 4"):
        plan.check()


def test_of_many_results_the_wrong_ones_are_shown() -> None:
    def fun(x: jax.Array, wrong: float = 1.0) -> list[jax.Array]:
        return [x * (i + 1) * (wrong if i == 29 else 1) for i in range(30)]

    plan = shm.plan(exported(fun, spec(8)).mlir_module(), None, target="cpu")
    broken = dataclasses.replace(plan, result=exported(lambda x: fun(x, 1.01), spec(8)).mlir_module())
    with pytest.raises(shm.CheckError) as caught:
        broken.check()
    lines = str(caught.value.check).splitlines()
    assert lines[0].startswith("WRONG: 1 of 30 results")
    assert lines[2].startswith("result[29]")
    assert "… and 18 more" in lines


def test_json_has_all_of_it(text_plan: shm.Plan) -> None:
    check: shm.Check = text_plan.check()
    data = json.loads(check.to_json())
    assert data["ok"] is True
    assert data["where"] == "the CPU"
    assert [one["path"] for one in data["results"]] == ["result"]
    assert data["results"][0]["ok"] is True
    assert data["results"][0]["new_from_f64"] <= data["results"][0]["limit"]
    assert isinstance(shm.CheckedResult.ok, property)


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        (lambda x: (x.sum(0), x * jnp.nan), "returns 2 results instead of 1"),
        (lambda x: x[:4].sum(0), None),
        (lambda x, y: x.sum(0) + y, "takes tensor<64x8xf32>, tensor<8xf32> instead of tensor<64x8xf32>"),
        (lambda x: (), "takes nothing instead of tensor<64x8xf32>"),
    ],
)
def test_another_signature_is_found(other: Callable[..., Any], fault: str | None) -> None:
    plan = shm.plan(exported(lambda x: x.sum(0), spec(64, 8)), None, target="cpu")
    specs = [spec(64, 8), spec(8)][: other.__code__.co_argcount]
    wrong = dataclasses.replace(plan, result=exported(other, *specs))
    with pytest.raises(shm.CheckError) as caught:
        wrong.check()
    assert not caught.value.check.ok
    assert fault is None or fault in str(caught.value)


def test_arguments_that_cannot_be_read_are_errors_that_name_them() -> None:
    plan = shm.plan(exported(lambda x, y: x - y, spec(4), spec(4)), None, target="cpu")
    gone = jnp.ones(4)
    gone.delete()
    with pytest.raises(shm.InputError, match="argument 1 cannot be read"):
        plan.check(np.ones(4, np.float32), gone)
    with pytest.raises(shm.InputError, match="give them by position"):
        plan.check(y=np.ones(4, np.float32), x=np.ones(4, np.float32))
    with pytest.raises(shm.InputError, match="captures come first"):
        plan.check(np.ones(4, np.float32))


def test_programs_that_call_python_are_not_checked() -> None:
    def shown(x: Any) -> Any:
        jax.debug.print("{}", x[0, 0])
        return jnp.tanh(x[:, None] * x[None]).sum(0)

    plan = shm.jit(shown, budget="min", target="cpu").plan(np.ones((64, 8), np.float32))
    with pytest.raises(shm.InputError, match="prints or calls Python"):
        plan.check()
