"""Programs that several processes run together: all make the same plan, and none waits for ever."""

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import pytest

BUDGET = 2**20


def run_together(scenario: str) -> list[dict[str, Any]]:
    """What each of the two processes prints."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tests.programs.two_processes"]
    environment = {name: value for name, value in os.environ.items() if name != "STABLEHLO_MEM_CACHE"}
    started = [
        subprocess.Popen(
            [*command, str(index), port, scenario],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for index in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    told = [re.findall(r"^OUTCOME (.*)$", out, re.MULTILINE) for out, _ in outputs]
    assert all(told), [error[-2000:] for _, error in outputs]
    return [json.loads(lines[0]) for lines in told]


@pytest.mark.parametrize("scenario", ["alike", "other figures", "less is free", "planned before"])
def test_both_run_the_same_program_within_the_budget(scenario):
    one, other = run_together(scenario)
    assert one["program"] == other["program"]
    for process in (one, other):
        assert process["after"] <= BUDGET < process["before"]
        assert process["error"] < 1e-6


@pytest.mark.parametrize(
    ("scenario", "errors"),
    [("too small", ["BudgetError", "BudgetError"]), ("first fails", ["ZeroDivisionError", "TargetError"])],
)
def test_both_fail_where_there_is_no_plan(scenario, errors):
    outcomes = run_together(scenario)
    assert [outcome["error"] for outcome in outcomes] == errors
    assert scenario != "first fails" or "process 0 has no plan: division by zero" in outcomes[1]["message"]
