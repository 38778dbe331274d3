"""Bad input: each is a typed error whose message names the thing and what to do."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.export import export

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import module_bytes, portable_artifact
from stablehlo_mem.utils.units import Share, parse_budget

SPEC = jax.ShapeDtypeStruct((8, 16), jnp.float32)
IDENTITY = "func.func {visibility} @{name}(%a: {type}) -> {type} {{ return %a : {type} }}"


def identity(visibility="public", name="main", type="tensor<4xf32>"):
    return IDENTITY.format(visibility=visibility, name=name, type=type)


def exported():
    return export(jax.jit(lambda x: jnp.sin(x) + x.sum()))(SPEC)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        (b"", "empty"),
        ("func.func @main(", "malformed MLIR text"),
        ("stablehlo.frobnicate", "malformed MLIR text"),
        ("import jax", "this is Python"),
        ("HloModule jit_f", "this is HLO, which XLA makes of StableHLO"),
        ("programs/attention.mlir", "this is the name of a file"),
        (b"nothing we know, at some length", "neither MLIR bytecode"),
        (b"ML\xefR", "malformed MLIR bytecode"),
        ("module {}", "no public function main .it has no functions"),
        (identity(name="forward"), "no public function main .it has forward.*rename"),
        (identity(visibility="private"), r"main \(private\)"),
        (identity(type="tensor<?x4xf32>"), r"dynamic shape tensor<\?x4xf32>"),
        (identity(type="tensor<*xf32>"), "dynamic shape|malformed"),
        (identity(type="!stablehlo.token"), "side effects"),
        (None, "cannot read a program from NoneType"),
        (jnp.sin, r"jax\.export\.export\(jax\.jit\(f\)\)"),
        (42, "cannot read a program from int"),
    ],
)
def test_no_program(module, message):
    with pytest.raises(shm.InputError, match=message):
        shm.optimize(module, "1GiB", target="cpu")


@pytest.mark.parametrize("form", ["bytecode", "artifact", "serialized"])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_truncated_bytes(form, part):
    program = exported()
    module = ingest(program).module
    data = {
        "bytecode": module_bytes(module),
        "artifact": portable_artifact(module),
        "serialized": bytes(program.serialize()),
    }[form]
    assert ingest(data).kind == form
    with pytest.raises(shm.InputError, match="malformed MLIR bytecode|nor a whole jax.export.Exported"):
        ingest(data[: int(len(data) * part)])


def test_dynamic_shapes_of_an_exported():
    (size,) = jax.export.symbolic_shape("size")
    dynamic = export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((size, 16), jnp.float32))
    with pytest.raises(shm.InputError, match=r"sin has a dynamic shape.*size,16.*concrete shapes"):
        shm.optimize(dynamic, "1GiB")


def printing(x):
    jax.debug.print("{}", x[0, 0])
    return x * 2


def calling_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def ordered(x):
    io_callback(lambda v: None, None, x, ordered=True)
    return x


@pytest.mark.parametrize("fun", [printing, calling_back, ordered])
def test_callbacks(fun):
    x = np.ones((8, 16), np.float32)
    shm.jit(fun, budget="1GiB")(x)
    with pytest.raises(shm.InputError, match=f"{fun.__name__}.*callbacks.*stablehlo_mem.jit"):
        shm.export(jax.jit(fun), budget="1GiB")(SPEC)
    with pytest.raises(shm.InputError, match="callback|token"):
        shm.optimize(str(jax.jit(fun).lower(SPEC).compiler_ir()), "1GiB")


def test_host_transfers():
    text = """func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %token = stablehlo.create_token : !stablehlo.token
      %0 = "stablehlo.outfeed"(%a, %token) {outfeed_config = ""} :
          (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
      return %a : tensor<4xf32>
    }"""
    with pytest.raises(shm.InputError, match=r"stablehlo\.outfeed"):
        shm.optimize(text, "1GiB")


@pytest.mark.parametrize(
    ("budget", "nbytes"),
    [
        (1, 1),
        (np.int64(2**40), 2**40),
        ("1024", 1024),
        ("512MiB", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("800kB", 800_000),
        ("800 KB", 800_000),
        ("2 GiB", 2 * 2**30),
        ("0.5TiB", 2**39),
        ("3M", 3_000_000),
        ("1_000", 1000),
        ("100B", 100),
        ("1.0000000005GB", 1_000_000_000),
        ("25%", Share(Fraction(1, 4), "temporaries")),
        ("0.5%", Share(Fraction(1, 200), "temporaries")),
        ("device", Share(Fraction(1), "device")),
        ("25 % of the temporaries", Share(Fraction(1, 4), "temporaries")),
        ("90% of  device", Share(Fraction(9, 10), "device")),
        ("90% of device", Share(Fraction(9, 10), "device")),
        ("32 mb", 32_000_000),
        (".5GiB", 2**29),
        ("1e9", 10**9),
        ("1.5e3 kB", 1_500_000),
        ("32G", 32_000_000_000),
        ("16gib", 16 * 2**30),
        ("16Gi", 16 * 2**30),
        ("Device", Share(Fraction(1), "device")),
        ("min", "min"),
        (" Min", "min"),
        ("none", None),
        (None, None),
    ],
)
def test_budgets(budget, nbytes):
    assert parse_budget(budget) == nbytes


@pytest.mark.parametrize(
    "budget",
    [
        *(0, -1, "-1", "0", "0GiB", "", " ", "lots", "MiB", "5 apples", "1iB", "1GiBB", "1e-3", "1e999"),
        *(
            "nan",
            "inf",
            "1,5GB",
            "101%",
            "-5%",
            "%",
            "0%",
            "0% of device",
            "120% of device",
            "half",
            "50% of it",
            "device 90%",
        ),
        *("least", True, False, 1.5, float("nan"), float("inf"), [], {}, b"1GiB", ("1GiB",)),
    ],
)
def test_budgets_that_are_none(budget):
    with pytest.raises(shm.InputError, match='512MiB", "1.5 GB"'):
        shm.optimize(exported(), budget)
    with pytest.raises(shm.InputError, match='512MiB", "1.5 GB"'):
        shm.jit(jnp.sin, budget=budget)


@pytest.mark.parametrize("budget", [np.int64(2**20), jnp.int32(2**20)])
def test_numbers_of_arrays_are_budgets(budget):
    assert shm.jit(jnp.sin, budget)(1.0) == jnp.sin(1.0)
    with shm.budget(budget):
        assert jax.jit(lambda x: jnp.sin(x))(1.0) == jnp.sin(1.0)


def test_a_budget_in_the_place_of_the_function_is_named():
    with pytest.raises(shm.InputError, match="name the budget, budget='1MiB'"):
        shm.jit("1MiB")


def test_a_budget_below_arguments_and_outputs_is_refused_before_compiling(monkeypatch):
    from stablehlo_mem.targets import compile as compiling

    def no_compiling(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(compiling, "measure", no_compiling)
    floor = 2 * 8 * 16 * 4
    with pytest.raises(shm.BudgetError, match="arguments") as caught:
        shm.optimize(exported(), floor - 1)
    assert caught.value.budget_bytes == floor - 1
    assert caught.value.needed_bytes >= floor
    assert isinstance(caught.value, shm.StableHLOMemError)
    with pytest.raises(AssertionError, match="compiled"):
        shm.optimize(exported(), floor)


@pytest.mark.parametrize("target", ["gpu:v100", "", "tpu:v5e ", 7, ("cpu", "nope")])
def test_unknown_targets(target):
    with pytest.raises(shm.TargetError, match="known are cpu, cuda, tpu"):
        shm.optimize(exported(), "1GiB", target=target)


def test_profile_of_a_module_takes_no_arguments():
    with pytest.raises(shm.InputError, match="no arguments"):
        shm.profile(exported(), SPEC)


def test_every_error_is_of_one_family_and_a_value_error_where_it_is_the_users():
    for error in (shm.BudgetError, shm.InputError, shm.TargetError, shm.PassError):
        assert issubclass(error, shm.StableHLOMemError)
    assert issubclass(shm.InputError, ValueError)
    assert issubclass(shm.TargetError, ValueError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"numerics": "exact"}, r"options are stablehlo_mem.Options\(...\), not dict"),
        (shm.Options(passes=["split-into-loops"]), "passes is a tuple of names"),  # pyright: ignore
        (shm.Options(passes="split-into-loops"), "passes is a tuple of names"),  # pyright: ignore
        (shm.Options(passes=("split",)), "there is no pass named split"),
        (shm.Options(max_compiles="3"), "max_compiles is a whole number, not '3'"),  # pyright: ignore
        (shm.Options(max_slowdown="2"), "max_slowdown is a number, or None"),  # pyright: ignore
        (shm.Options(cache="no"), "cache is True or False, not 'no'"),  # pyright: ignore
    ],
)
def test_an_option_of_another_type_is_named(options, message):
    with pytest.raises(shm.InputError, match=message):
        shm.plan(exported(), "1MiB", target="cpu", options=options)
