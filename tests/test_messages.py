"""What users read when something is wrong, word for word, in Python and on the command line."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.cli import main as cli
from tests.support import exported, spec

FORMS = (
    'an int of bytes, a string like "512MiB", "1.5 GB" or "32G", "25%" of the temporaries, "device" or '
    '"90% of device", "min" for the smallest, or "none" for no limit'
)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.softmax(q @ k.T) @ v


def ordered(x: jax.Array) -> jax.Array:
    """Sorted distances: sorted along one dimension, transformed along the other."""
    return jnp.sort(jnp.fft.fft(x @ x.T).real, axis=0).sum(0)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> str:
    """Attention over 1,024 tokens: 8 MiB of scores and weights, 1 MiB of arguments and outputs."""
    path = tmp_path / "attention.bin"
    path.write_bytes(exported(attention, *[spec(1024, 64)] * 3).serialize())
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to standard error, without its name."""
    code = cli.main(list(command))
    return code, capsys.readouterr().err.strip().removeprefix("stablehlo_mem: ")


def test_a_limit_of_compilations_does_not_blame_the_program(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = said(capsys, "optimize", file, "--target", "cpu", "--budget", "3MiB", "--max-compiles", "1")
    assert code == cli.EXIT_BUDGET
    assert "the limit of compilations was reached before anything was tried, max_compiles=1: at 2 it may fit" in error
    assert "what stands in the way" not in error
    assert said(capsys, "optimize", file, "--target", "cpu", "--budget", "3MiB", "--max-compiles", "2")[0] == 0


def test_a_limit_of_time_is_said_too() -> None:
    options = shm.Options(max_seconds=1e-3, cache=False)
    with pytest.raises(shm.BudgetError) as caught:
        shm.optimize(exported(ordered, spec(1024, 16)), "2MiB", target="cpu", options=options)
    assert "the limit of time was reached before the search ended, max_seconds=0.001" in str(caught.value)


def test_obstacles_name_the_users_operations_and_values() -> None:
    plan = shm.plan(exported(ordered, spec(1024, 16)), "2MiB", target="cpu")
    assert not plan.fits
    assert plan.steps, "loops of the planner's are there that could be named"
    text = str(plan)
    for refusal in plan.refusals:
        assert "test_messages.py" in refusal.location
        assert refusal.value.split()[-1] in ("f32[1024,1024]", "f32[16,1024]", "complex<f32>[1024,1024]"), refusal
        assert "while" not in refusal.value + refusal.message
    assert "while" not in text


def test_an_explanation_of_an_impossible_budget_says_so(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", file, "--target", "cpu", "--budget", "512KiB"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith(
        "the budget of 512 KiB is below the arguments and outputs alone (1 MiB with donation counted once); "
        "no plan can change that"
    )
    possible = shm.explain(attention, *[spec(1024, 64)] * 3, budget="2MiB", target="cpu")
    assert possible.impossible == ""


def test_a_budget_that_only_regrouped_sums_reach_says_so() -> None:
    program = exported(lambda a: (jnp.tanh(a @ a.T) ** 3).mean(), spec(1024, 64))
    assert shm.plan(program, "20%", target="cpu").fits
    with pytest.raises(shm.BudgetError) as failed:
        shm.optimize(program, "20%", target="cpu", options=shm.Options(numerics="exact"))
    text = str(failed.value)
    assert (
        "dimension 0: it could split dot_general f32[1024,1024] along dimension 0 (dimension 0 of its left operand) "
        "with Options(numerics='reassociate')"
    ) in text
    assert 'allow Options(numerics="reassociate"): what needs it is listed above' in text


def test_a_python_file_is_called_one(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.py"
    path.write_text("import jax\n\ndef f(x):\n    return x\n")
    assert said(capsys, "optimize", str(path), "--budget", "1MiB") == (
        cli.EXIT_USAGE,
        "this is Python, not a program that was exported: export the function first, "
        'open("f.bin", "wb").write(jax.export.export(jax.jit(f))(*arguments).serialize())',
    )


def test_a_report_in_json_is_called_json(file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `--json` prints is an easy file to give back by mistake."""
    assert cli.main(["profile", file, "--target", "cpu", "--json"]) == 0
    path = tmp_path / "profile.json"
    path.write_text(capsys.readouterr().out)
    code, error = said(capsys, "profile", str(path))
    assert code == cli.EXIT_USAGE
    assert error.startswith("this is JSON, not a program that was exported: export the function first, open(")


def test_bytes_that_are_no_program_are_called_that(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.bin"
    path.write_bytes(b"\x7fELF" + bytes(2000))
    assert said(capsys, "optimize", str(path), "--budget", "1MiB") == (
        cli.EXIT_USAGE,
        "2,004 bytes, 7f 45 4c 46 00 00 00 00 ..., are no program: neither MLIR bytecode nor a StableHLO portable "
        "artifact (which begin with 4d 4c ef 52), nor a whole jax.export.Exported as `serialize` writes it",
    )


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("12x", f"cannot read the budget '12x': give {FORMS}"),
        ("0", f"a budget of 0 is no memory at all: give {FORMS}"),
        (str(2**63), f"a budget of {2**63} is more than any memory: give {FORMS}"),
        ("0%", f"a budget of '0%' leaves no room for any temporary: give {FORMS}"),
        ("0% of device", f"a budget of '0% of device' is no memory at all: give {FORMS}"),
        ("120%", f"a budget of '120%' is more than there is: give at most 100%, or {FORMS}"),
    ],
)
def test_a_wrong_budget(budget: str, message: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "optimize", file, "--target", "cpu", "--budget", budget) == (cli.EXIT_USAGE, message)


@pytest.mark.parametrize("option", ["--max-seconds", "--max-slowdown"])
def test_a_limit_that_is_no_number(option: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["optimize", file, "--budget", "3MiB", option, "soon"])
    assert capsys.readouterr().err.endswith(f"argument {option}: a number, or \"none\" for no limit, not 'soon'\n")


@pytest.mark.parametrize(
    "planned", [lambda **how: shm.jit(attention, "1MiB", **how), lambda **how: shm.budget("1MiB", **how)]
)
def test_what_cannot_be_options_or_targets_is_said_before_the_call(planned: Any) -> None:
    with pytest.raises(shm.InputError, match=r"options are stablehlo_mem.Options\(...\), not dict"):
        planned(options={"numerics": "exact"})
    with pytest.raises(shm.TargetError, match=r"several targets are a tuple of names, not \['cpu', 'tpu:v5e'\]"):
        planned(target=["cpu", "tpu:v5e"])


def test_bits_of_rbg_stand_in_the_way_and_those_of_threefry_do_not() -> None:
    """What docs/limits.md says of random keys."""

    def noisy(key: jax.Array, x: jax.Array) -> jax.Array:
        return (jnp.tanh(x[:, None] * x[None]) * jax.random.bernoulli(key, 0.9, (512, 512))).sum(1)

    x = jnp.linspace(0, 1, 512)
    plans = {
        impl: shm.jit(noisy, "30%", target="cpu").plan(jax.random.key(0, impl=impl), x)
        for impl in ("threefry2x32", "rbg", "unsafe_rbg")
    }
    assert [plan.fits for plan in plans.values()] == [True, False, False]
    for plan in (plans["rbg"], plans["unsafe_rbg"]):
        assert plan.after.temp_bytes >= 4 * 512 * 512
        assert {refusal.value for refusal in plan.refusals} == {"rng_bit_generator ui32[512,512]"}


def test_a_folder_is_no_file_to_write(file: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("optimize", file, "--target", "cpu", "--budget", "3MiB", "-o", str(tmp_path))
    assert said(capsys, *command) == (cli.EXIT_USAGE, f"cannot write {tmp_path}: it is a folder")


def test_no_limit_is_none_in_python_and_in_the_shell(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shm.plan(exported(attention, *[spec(64, 8)] * 3), "none", target="cpu").budget_bytes is None
    assert said(capsys, "optimize", file, "--target", "cpu", "--budget", "none")[0] == 0


def test_a_profile_names_its_target(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", file, "--target", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("Memory of one execution on cpu\n")


def test_targets_are_rated_by_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split("  ")[0] == "target"
    assert [head in heads for head in ("bf16 matmuls", "f32 matmuls", "f32 in full", "reads and writes")] == [True] * 4
    (row,) = [row for row in rows if row.startswith("tpu:v5e")]
    assert row.split()[-7:] == ["TFLOP/s", "197", "TFLOP/s", "50", "TFLOP/s", "820", "GB/s"]
