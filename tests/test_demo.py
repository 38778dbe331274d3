"""The demo at a size for tests: it runs whole, keeps its budgets and says what it skips."""

from __future__ import annotations

import pytest

from stablehlo_mem.cli import demo
from stablehlo_mem.cli import main as cli
from stablehlo_mem.errors import TargetError


def test_the_demo_runs_and_keeps_its_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--tokens", "4096", "--long-tokens", "6000", "--report", "2048"]) == 0
    out = capsys.readouterr().out
    assert "4,096 tokens on this CPU" in out
    assert "would need" in out
    assert "largest relative difference" in out
    assert "demo.py:" in out  # its own lines: no file around it has them
    for target in demo.OTHER_TARGETS:
        assert target in out


def test_a_compiler_that_is_not_installed_is_skipped_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise TargetError("compiling for it needs a plugin: pip install stablehlo-mem[tpu]")

    monkeypatch.setattr(demo.shm, "plan", missing)
    demo.print_reports(demo.Console(width=200), 256)
    assert "tpu:v5e skipped" in capsys.readouterr().out.replace("\n", " ")
