"""Figures of this machine: measured, kept, and used where its devices are meant."""

import functools
import json

import jax
import jax.numpy as jnp
import pytest
from jax.export import export

import stablehlo_mem as shm
from stablehlo_mem.cli.main import main
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner.plan_cache import entry_path
from stablehlo_mem.targets import calibration
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.target import named_targets


@pytest.fixture
def path(monkeypatch, tmp_path):
    """Where figures are kept; what is measured is small."""
    monkeypatch.setattr(calibration, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "_ITERATIONS", 20)
    file = tmp_path / "settings" / "chips.json"
    monkeypatch.setenv("STABLEHLO_MEM_CALIBRATION", str(file))
    return file


@pytest.fixture(scope="module")
def measured():
    """Measures the machine once for all the tests of the file that the figures are kept in."""
    return functools.cache(calibration.measured)


def test_what_is_measured_is_used_from_then_on(path):
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]
    chip = shm.calibrate("cpu")
    assert named_targets("cpu")[0].chip == chip != CHIPS["cpu"]
    assert chip.flops_per_second > 0
    assert chip.bytes_per_second > 0
    assert chip.step_seconds > 0
    assert chip.reduced_seconds >= 0
    assert (chip.name, chip.kind, chip.packed_rows) == ("cpu", "cpu", CHIPS["cpu"].packed_rows)
    (figures,) = json.loads(path.read_text()).values()
    assert all(getattr(chip, name) == value for name, value in figures.items())
    assert list(path.parent.iterdir()) == [path]


def test_named_chips_keep_what_is_built_in(path):
    shm.calibrate("cpu")
    assert named_targets("tpu:v5e")[0].chip == CHIPS["tpu:v5e"]


def test_figures_of_other_machines_stay(path):
    path.parent.mkdir()
    other = {"another processor, 64 cores": {"flops_per_second": 1e13}}
    path.write_text(json.dumps(other))
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]
    shm.calibrate("cpu")
    assert len(json.loads(path.read_text())) == 2
    assert other.items() <= json.loads(path.read_text()).items()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\0"])
def test_a_file_of_no_json_is_left_aside(path, caplog, text):
    path.parent.mkdir()
    path.write_text(text)
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]
    assert "left aside" in caplog.text


@pytest.mark.parametrize(
    "figures",
    [
        *(1, [], None, {"name": "x"}, {"kind": "tpu"}, {"flops_per_second": "fast"}),
        *({name: value} for name in ("flops_per_second", "bytes_per_second", "cores") for value in (0, -1, True)),
        *({"cores": value} for value in (1.5, float("nan"), 10**400)),
        *({"step_seconds": value} for value in (-1.0, float("nan"), float("inf"))),
    ],
)
def test_what_is_no_figure_is_left_aside(path, measured, monkeypatch, figures):
    monkeypatch.setattr(calibration, "measured", measured)
    shm.calibrate("cpu")
    (machine,) = json.loads(path.read_text())
    other = {"another machine": {"cores": 64}}
    path.write_text(json.dumps({machine: figures, **other}))
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]
    shm.calibrate("cpu")
    assert named_targets("cpu")[0].chip != CHIPS["cpu"]
    assert other.items() <= json.loads(path.read_text()).items()


def test_where_nothing_can_be_kept_it_says_so(path, monkeypatch):
    path.mkdir(parents=True)
    with pytest.raises(shm.InputError, match="cannot be kept"):
        shm.calibrate("cpu")
    assert list(path.parent.iterdir()) == [path]
    monkeypatch.setenv("STABLEHLO_MEM_CALIBRATION", "~nobody-of-that-name/chips.json")
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]


def test_an_empty_name_keeps_nothing(path, monkeypatch):
    monkeypatch.setenv("STABLEHLO_MEM_CALIBRATION", "")
    assert shm.calibrate("cpu") != CHIPS["cpu"]
    assert named_targets("cpu")[0].chip == CHIPS["cpu"]
    assert not path.exists()


@pytest.mark.parametrize("target", ["tpu:v5e", "cuda:h200", "abacus"])
def test_only_devices_of_this_machine_are_measured(path, target):
    with pytest.raises(shm.TargetError):
        shm.calibrate(target)
    assert not path.exists()


def test_plans_by_other_figures_are_others(path, tmp_path, monkeypatch):
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(tmp_path / "plans"))
    program = ingest(export(jax.jit(lambda x: x + 1), platforms=["cpu"])(jax.ShapeDtypeStruct((4,), jnp.float32)))
    before = entry_path(program, 100, named_targets("cpu"), Options())
    shm.calibrate("cpu")
    assert entry_path(program, 100, named_targets("cpu"), Options()) != before


def test_the_command_prints_the_figures(path, capsys):
    assert main(["calibrate", "cpu"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("cpu: plans are now compared by these figures; estimated times change, peaks do not\n")
    assert "matmuls of float32" in shown.out
    assert str(path) in shown.err
    assert main(["calibrate", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "cpu"
