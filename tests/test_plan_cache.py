"""Plans kept in a directory: followed without compiling, and only where nothing that decided them has changed."""

import dataclasses
import hashlib
import json
import logging
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.planner import plan_cache
from stablehlo_mem.reports.html import plan_page
from stablehlo_mem.targets.target import Target, named_targets
from tests.support import exported, normals, spec, text

N = 512
SPECS = [spec(N, 16)] * 3
BUDGET = 400 * 2**10


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 4, axis=-1) @ v


def spectrum(q, k):
    """A transform of all the scores at once: they cannot be split."""
    return jnp.abs(jnp.fft.fft((q @ k.T).reshape(-1)))[:16]


def plan_of(function=attention, specs=SPECS, budget=BUDGET, **options):
    return shm.plan(exported(function, *specs), budget, target="cpu", options=shm.Options(**options))


@pytest.fixture
def compiles(monkeypatch):
    asked = []
    real = Target.measure
    monkeypatch.setattr(Target, "measure", lambda self, *given: asked.append(self.name) or real(self, *given))
    return asked


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A directory for plans."""
    directory = tmp_path / "plans"
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(directory))
    return directory


def decisions(plan):
    data = json.loads(plan.to_json())
    return {name: data[name] for name in data if name not in ("compiles", "planning_seconds", "compile_seconds")}


def test_a_kept_plan_is_followed_without_compiling(kept, compiles):
    first = plan_of()
    assert first.steps
    assert first.before.peak_bytes > BUDGET >= first.after.peak_bytes
    assert len(list(kept.iterdir())) == 1
    asked = len(compiles)
    assert asked == first.compiles > 1
    second = plan_of()
    assert len(compiles) == asked
    assert second.compiles == 0
    assert decisions(second) == decisions(first)
    assert second.steps == first.steps
    assert text(second.module) == text(first.module)
    assert second.refusals == first.refusals
    assert (second.before, second.after) == (first.before, first.after)
    given = [normals(N, 16, seed=i) for i in range(3)]
    assert np.array_equal(second.exported.call(*given), first.exported.call(*given))


def test_what_fits_comes_back_itself(kept, compiles):
    program = exported(attention, *SPECS)
    assert shm.optimize(program, "1GiB", target="cpu") is program
    assert len(compiles) == 1
    again = exported(attention, *SPECS)
    assert shm.optimize(again, "1GiB", target="cpu") is again
    assert len(compiles) == 1


def test_a_budget_that_cannot_be_kept_is_refused_again(kept, compiles):
    program = exported(spectrum, *SPECS[:2])
    errors = []
    for _ in range(2):
        with pytest.raises(shm.BudgetError) as info:
            shm.optimize(program, "300KiB", target="cpu")
        errors.append((str(info.value), info.value.obstacles, len(compiles)))
    assert errors[0][1]
    assert errors[1] == errors[0]


def test_nothing_is_kept_without_a_directory(monkeypatch, compiles):
    monkeypatch.delenv("STABLEHLO_MEM_CACHE", raising=False)
    assert jax.config.jax_compilation_cache_dir is None
    assert plan_cache.cache_directory() is None
    assert plan_of().compiles == plan_of().compiles > 1


def test_nothing_is_kept_that_is_not_wanted(kept, compiles):
    assert plan_of(cache=False).fits
    assert not kept.exists()
    assert plan_of().compiles > 1
    assert plan_of(cache=False).compiles > 1


@pytest.mark.parametrize(
    "other",
    [
        {"budget": BUDGET + 1},
        {"numerics": "exact"},
        {"specs": [spec(N + 2, 16)] * 3},
    ],
    ids=["budget", "options", "program"],
)
def test_another_question_is_planned_anew(kept, other):
    plan_of()
    assert plan_of(**other).compiles > 0
    assert len(list(kept.iterdir())) == 2


def test_other_compilers_and_other_chips_are_other_questions(kept, monkeypatch):
    program = ingest(exported(attention, *SPECS))
    (target,) = named_targets("cpu")
    larger = dataclasses.replace(target, chip=dataclasses.replace(target.chip, cache_bytes=1))
    paths = {plan_cache.entry_path(program, BUDGET, (one,), shm.Options()) for one in (target, larger)}
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    paths.add(plan_cache.entry_path(program, BUDGET, (target,), shm.Options()))
    monkeypatch.setattr(jax, "__version__", "0")
    paths.add(plan_cache.entry_path(program, BUDGET, (target,), shm.Options()))
    assert len(paths) == 4


def signed(text):
    """What a file with this text would be, had the cache written it."""
    return hashlib.sha256(text.encode()).hexdigest() + "\n" + text


def _altered(data, **changes):
    return json.dumps({**data, "plan": {**data["plan"], **changes}})


def _other_step(data, **changes):
    *others, split = data["plan"]["steps"]
    return _altered(data, steps=[*others, {**split, **changes}])


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: "",
        lambda data: json.dumps(data)[:-40],
        lambda data: "[]",
        lambda data: _altered(data, steps=3),
        lambda data: _altered(data, after=None),
        lambda data: _altered(data, steps=[]),
        lambda data: _other_step(data, input_fingerprint="0"),
        lambda data: _other_step(data, pass_name="none"),
        lambda data: _other_step(data, params={}),
        lambda data: _other_step(data, params={**data["plan"]["steps"][-1]["params"], "chunk": 3}),
    ],
    ids=["empty", "cut", "list", "steps", "after", "no steps", "fingerprint", "pass", "parameters", "chunk"],
)
def test_a_damaged_plan_is_made_anew_and_mended(kept, damage, caplog):
    first = plan_of()
    (path,) = kept.iterdir()
    text = path.read_text().partition("\n")[2]
    assert path.read_text() == signed(text)
    path.write_text(signed(damage(json.loads(text))))
    with caplog.at_level(logging.WARNING):
        second = plan_of()
    assert second.compiles == first.compiles
    assert decisions(second) == decisions(first)
    assert plan_of().compiles == 0


def test_a_flipped_bit_anywhere_is_seen(kept, caplog):
    first = plan_of()
    (path,) = kept.iterdir()
    data = path.read_bytes()
    assert plan_cache.read(path) is not None
    digit = data.rindex(b'"temp_bytes": ') + len(b'"temp_bytes": ')  # of a figure: with another it reads as well
    with caplog.at_level(logging.CRITICAL):
        for i in (*range(0, len(data), 499), len(data) - 1, digit):
            path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
            assert plan_cache.read(path) is None, i
            path.write_bytes(data[:i])
            assert plan_cache.read(path) is None, i
        path.write_bytes(data[:digit] + bytes([data[digit] ^ 1]) + data[digit + 1 :])
        second = plan_of()
    assert second.compiles == first.compiles
    assert decisions(second) == decisions(first)
    assert path.read_bytes() != data[:digit] + bytes([data[digit] ^ 1]) + data[digit + 1 :]


def test_a_directory_that_cannot_be_written_does_no_harm(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STABLEHLO_MEM_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert plan_of().fits
    assert "not kept" in caplog.text


def test_plans_lie_beside_the_executables_that_jax_keeps(monkeypatch, tmp_path):
    monkeypatch.delenv("STABLEHLO_MEM_CACHE", raising=False)
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert plan_cache.cache_directory() == tmp_path / "stablehlo_mem"
        monkeypatch.setenv("STABLEHLO_MEM_CACHE", "")
        assert plan_cache.cache_directory() is None
        monkeypatch.delenv("STABLEHLO_MEM_CACHE")
        jax.config.update("jax_compilation_cache_dir", "gs://bucket/cache")
        assert plan_cache.cache_directory() is None
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


def test_a_change_of_any_file_of_the_package_leaves_older_plans_aside(tmp_path):
    assert pathlib.Path(shm.__file__).parent == plan_cache.PACKAGE
    copy = shutil.copytree(plan_cache.PACKAGE, tmp_path / "stablehlo_mem")
    assert plan_cache.sources_digest(copy) == plan_cache.package_digest()
    for name in ("errors.py", "sharding_rules/linalg.py", "splitting/online/rescaling.py"):
        before = plan_cache.sources_digest(copy)
        with (copy / name).open("a") as file:
            file.write("# one line more\n")
        assert plan_cache.sources_digest(copy) != before


def test_a_plan_of_an_earlier_version_is_read():
    """Without the fields that were added since: the program's name and the scopes of the history's points."""
    plan = plan_of()
    entry = json.loads(plan_cache.serialised(plan).partition(b"\n")[2])
    del entry["plan"]["name"]
    for side in ("before", "after"):
        del entry["plan"][side]["history"]["scopes"]
    data = json.dumps(entry).encode()
    old = plan_cache.parsed(hashlib.sha256(data).hexdigest().encode() + b"\n" + data).plan
    assert old.name == ""
    assert old.steps == plan.steps
    assert old.before.history == dataclasses.replace(plan.before.history, scopes=())
    assert old.before.measured == plan.before.measured
    assert "<h1>cpu: " in plan_page(old)


def test_a_kept_plan_takes_the_name_of_the_program(kept):
    assert plan_of().name == plan_of().name == "attention"
