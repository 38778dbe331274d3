"""The command line: what it reads, writes, prints and exits with."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import json
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.cli import main as cli
from stablehlo_mem.ir.bindings import module_bytes, parse_module

MIB = 2**20
BUDGET = "2MiB"
FLOOR = str(2 * 1024 * 8 * 4 + 1024 * 4 + 64)
"""Arguments, outputs and next to nothing."""


def knn(x: jax.Array, q: jax.Array) -> jax.Array:
    distances = (q**2).sum(-1)[:, None] + (x**2).sum(-1)[None] - 2 * q @ x.T
    return distances.min(1)


@pytest.fixture(scope="module")
def exported() -> jax.export.Exported:
    """4 MiB of distances."""
    spec = jax.ShapeDtypeStruct((1024, 8), jnp.float32)
    return jax.export.export(jax.jit(knn), platforms=["cpu"])(spec, spec)


def encoded(exported: jax.export.Exported, kind: str) -> bytes:
    if kind == "exported":
        return bytes(exported.serialize())
    if kind == "artifact":
        return bytes(exported.mlir_module_serialized)
    module = parse_module(exported.mlir_module())
    return str(module).encode() if kind == "text" else module_bytes(module)


@pytest.mark.parametrize("kind", ["exported", "artifact", "text", "bytecode"])
def test_optimize_writes_the_kind_it_read_whatever_the_name(
    kind: str, exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, result = tmp_path / "program.dat", tmp_path / "result.dat"
    source.write_bytes(encoded(exported, kind))
    assert cli.main(["optimize", str(source), "--budget", BUDGET, "--target", "cpu", "-o", str(result)]) == 0
    assert "within the budget of 2 MiB" in capsys.readouterr().out
    assert kind_of(result.read_bytes()) == kind
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.dat", "result.dat"]


def kind_of(data: bytes) -> str:
    if data.startswith(b"ML\xefR"):
        return "artifact" if b"StableHLO_v" in data[:64] else "bytecode"
    try:
        return "text" if "stablehlo.while" in data.decode() else "unsplit text"
    except UnicodeDecodeError:
        return "exported" if "stablehlo.while" in jax.export.deserialize(bytearray(data)).mlir_module() else "?"


def test_optimize_reads_standard_input_and_writes_standard_output(exported: jax.export.Exported) -> None:
    command = [sys.executable, "-m", "stablehlo_mem", "optimize", "-", "--budget", BUDGET, "--target", "cpu", "-o", "-"]
    done = subprocess.run(command, input=encoded(exported, "text"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    parse_module(done.stdout.decode())
    assert b"within the budget" in done.stderr


def test_optimize_without_output_only_reports(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))
    assert cli.main(["optimize", str(source), "--budget", BUDGET, "--target", "cpu", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["fits"] is True
    assert "Nothing written" in captured.err


def test_a_budget_that_cannot_be_kept_exits_with_1_and_writes_nothing(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, result = tmp_path / "program.mlir", tmp_path / "result.mlir"
    source.write_bytes(encoded(exported, "text"))
    result.write_text("what was there before")
    assert cli.main(["optimize", str(source), "--budget", FLOOR, "--target", "cpu", "-o", str(result)]) == 1
    captured = capsys.readouterr()
    assert "budget" in captured.err
    assert "Traceback" not in captured.err
    assert result.read_text() == "what was there before"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "-5"], "budget"),
        (["--budget", "plenty"], "budget"),
        (["--budget", "1MiB", "--target", "abacus"], "abacus"),
        (["--budget", "1MiB", "-o", "/no/such/folder/result.mlir"], "/no/such/folder"),
    ],
)
def test_bad_options_exit_with_2_and_one_clear_message(
    arguments: list[str],
    message: str,
    exported: jax.export.Exported,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))
    assert cli.main(["optimize", str(source), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "content",
    [b"", b"  \n", b"module { this is not MLIR", b"ML\xefR then nothing", b"\xff\x00\x01 no flatbuffer", b"\0\0\0\0"],
)
@pytest.mark.parametrize("command", ["optimize", "profile"])
def test_bad_input_exits_with_2(
    command: str, content: bytes, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program.mlirbc"
    source.write_bytes(content)
    arguments = [command, str(source), *(["--budget", "1MiB"] if command == "optimize" else []), "--target", "cpu"]
    assert cli.main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_truncated_files_exit_with_2(exported: jax.export.Exported, tmp_path: pathlib.Path) -> None:
    for kind in ("exported", "artifact", "bytecode", "text"):
        data = encoded(exported, kind)
        source = tmp_path / kind
        source.write_bytes(data[: len(data) // 2])
        assert cli.main(["profile", str(source), "--target", "cpu"]) == 2, kind


def test_a_missing_file_exits_with_2(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profile", str(tmp_path / "absent.mlir")]) == 2
    assert "absent.mlir" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["optimize", "x.mlir"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2


def test_an_unknown_argument_gets_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["profile", "program.mlir", "--budget", "1GiB"])
    error = capsys.readouterr().err
    assert " profile [-h]" in error
    assert "unrecognized arguments: --budget" in error


def test_an_error_of_ours_exits_with_3_and_debug_shows_it(
    exported: jax.export.Exported, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise shm.PassError("split-into-loops", "lost a value")

    monkeypatch.setattr(shm, "profile", broken)
    monkeypatch.setattr(sys, "stdin", standard_input(encoded(exported, "text")))
    assert cli.main(["profile", "-"]) == 3
    assert "pass split-into-loops: lost a value" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", standard_input(encoded(exported, "text")))
    with pytest.raises(shm.PassError):
        cli.main(["profile", "-", "--debug"])


def standard_input(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data))


def test_profile_shows_the_peak_and_its_values(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program"
    source.write_bytes(encoded(exported, "exported"))
    assert cli.main(["profile", str(source), "--target", "cpu"]) == 0
    assert "4 MiB" in capsys.readouterr().out
    assert cli.main(["profile", str(source), "--target", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peak_bytes"] >= 4 * MIB


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tmp_path / "result.mlir"
    result.write_text("old")

    def full_disk(self: pathlib.Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space"):
        cli.write_output(str(result), b"new and longer")
    assert result.read_text() == "old"
    assert list(tmp_path.iterdir()) == [result]


def test_a_link_is_written_through(tmp_path: pathlib.Path) -> None:
    real, link = tmp_path / "real.mlir", tmp_path / "link.mlir"
    real.write_text("old")
    link.symlink_to(real)
    cli.write_output(str(link), b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_plan_over_budget_is_not_written(
    exported: jax.export.Exported, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, result = tmp_path / "program", tmp_path / "result"
    source.write_bytes(encoded(exported, "exported"))
    best = shm.plan(encoded(exported, "exported"), 8 * MIB, target="cpu")
    monkeypatch.setattr(shm, "plan", lambda *_, **__: dataclasses.replace(best, fits=False))
    assert cli.main(["optimize", str(source), "--budget", "1MiB", "-o", str(result)]) == 1
    assert not result.exists()


def test_explain_offers_steps_as_text_data_and_page(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, page = tmp_path / "program.mlir", tmp_path / "page.html"
    source.write_bytes(encoded(exported, "text"))
    assert cli.main(["explain", str(source), "--target", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "Steps offered at this peak" in text
    assert "[split-into-loops]" in text
    command = ["explain", str(source), "--target", "cpu", "--budget", BUDGET, "--json", "--html", str(page)]
    assert cli.main(command) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["goal_bytes"] < 2 * MIB
    assert data["offers"]
    assert "Steps offered at this peak" in page.read_text()


def test_curve_is_a_table_for_a_chip_too(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))
    assert cli.main(["curve", str(source), "--target", "tpu"]) == 0
    assert "Memory against time" in capsys.readouterr().out


def test_targets_lists_what_is_known_and_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["targets"]) == 0
    text = capsys.readouterr().out
    assert {"cpu", "tpu:v5e", "cuda:h200"} <= set(text.split())
    assert cli.main(["targets", "--json"]) == 0
    listed = {one["chip"]["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["cpu"]["attached"] >= 1
    assert listed["cpu"]["compiles"]
    assert listed["tpu:v5e"]["chip"]["memory_bytes"] == 16 * 2**30


def test_a_target_whose_compiler_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stablehlo_mem.targets.known_targets.is_installed", lambda _: False)
    assert cli.main(["targets"]) == 0
    assert "pip install stablehlo-mem[cuda]" in capsys.readouterr().out


def test_optimize_writes_the_page_also_of_a_plan_over_budget(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, page = tmp_path / "program.mlir", tmp_path / "page.html"
    source.write_bytes(encoded(exported, "text"))
    common = ["optimize", str(source), "--target", "cpu", "--html", str(page)]
    assert cli.main([*common, "--budget", BUDGET]) == 0
    assert "within the budget of 2 MiB" in page.read_text()
    capsys.readouterr()
    assert cli.main([*common, "--budget", FLOOR, "--json", "--max-compiles", "3"]) == 1
    assert "OVER the budget" in page.read_text()
    captured = capsys.readouterr()
    assert json.loads(captured.out)["fits"] is False
    assert "cannot be kept" in captured.err


def test_no_page_is_written_for_a_budget_below_arguments_and_outputs(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, page = tmp_path / "program.mlir", tmp_path / "page.html"
    source.write_bytes(encoded(exported, "text"))
    assert cli.main(["optimize", str(source), "--target", "cpu", "--html", str(page), "--budget", "1KiB"]) == 1
    assert f"{page} is not written: nothing was planned." in capsys.readouterr().err
    assert not page.exists()


def test_curve_lists_budgets(
    exported: jax.export.Exported,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))
    command = ["curve", str(source), "--target", "cpu", "--json"]
    assert cli.main(command) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    peaks = [point["peak_bytes"] for point in json.loads(quiet.out)]
    assert peaks == sorted(peaks, reverse=True)
    assert len(peaks) > 1


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == importlib.metadata.version("stablehlo-mem")


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("arguments", [("targets",), ("targets", "--json"), ("optimize", "-o", "-")])
def test_standard_output_that_cannot_be_written_exits_with_2(
    arguments: tuple[str, ...], exported: jax.export.Exported, tmp_path: pathlib.Path
) -> None:
    command = [sys.executable, "-m", "stablehlo_mem", *arguments]
    if "optimize" in arguments:
        source = tmp_path / "program.mlir"
        source.write_bytes(encoded(exported, "text"))
        command += [str(source), "--budget", "8MiB", "--target", "cpu"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_reader_who_stops_is_no_error(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))
    command = [sys.executable, "-m", "stablehlo_mem", "explain", str(source), "--target", "cpu", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        complaints = running.stderr.read()
    assert b"Traceback" not in complaints
    assert b"BrokenPipe" not in complaints
    assert running.returncode == cli.EXIT_PIPE


def test_a_check_is_printed_and_the_program_written(
    exported: jax.export.Exported, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, result = tmp_path / "program.mlir", tmp_path / "result.mlir"
    source.write_bytes(encoded(exported, "text"))
    command = ["optimize", str(source), "--budget", BUDGET, "--target", "cpu", "--check", "-o", str(result)]
    assert cli.main(command) == 0
    assert "Checked: 1 result right, on the CPU, arguments drawn, seed 0" in capsys.readouterr().out
    assert result.exists()
    assert cli.main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["fits"] is True
    assert data["check"]["ok"] is True
    assert data["check"]["results"][0]["path"] == "result"


def test_a_check_that_fails_exits_with_3_and_writes_nothing(
    exported: jax.export.Exported,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, result = tmp_path / "program.mlir", tmp_path / "result.mlir"
    source.write_bytes(encoded(exported, "text"))
    plan = shm.plan

    def wrong(*args: Any, **kwargs: Any) -> shm.Plan:
        right = plan(*args, **kwargs)
        return dataclasses.replace(right, result=right.result.replace("stablehlo.minimum", "stablehlo.maximum"))

    monkeypatch.setattr(shm, "plan", wrong)
    command = ["optimize", str(source), "--budget", BUDGET, "--target", "cpu", "--check", "-o", str(result)]
    assert cli.main(command) == 3
    captured = capsys.readouterr()
    assert "WRONG: 1 of 1 results, on the CPU" in captured.out
    assert "does not compute what the original does (on the CPU): result " in captured.err
    assert not result.exists()
    assert cli.main([*command, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["check"]["ok"] is False


def test_a_check_for_which_there_is_no_room_exits_with_2(
    exported: jax.export.Exported,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, result = tmp_path / "program.mlir", tmp_path / "result.mlir"
    source.write_bytes(encoded(exported, "text"))
    monkeypatch.setattr("stablehlo_mem.targets.execution.host_free_bytes", lambda: 2**20)
    command = ["optimize", str(source), "--budget", BUDGET, "--target", "cpu", "--check", "-o", str(result)]
    assert cli.main(command) == 2
    assert "are needed on the CPU, where 1 MiB are free" in capsys.readouterr().err
    assert not result.exists()


def test_nothing_is_run_unless_a_check_is_asked_for(
    exported: jax.export.Exported, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "program.mlir"
    source.write_bytes(encoded(exported, "text"))

    def run(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("stablehlo_mem.targets.execution.Place.run", run)
    assert cli.main(["optimize", str(source), "--budget", BUDGET, "--target", "cpu"]) == 0
