"""budget="min": goals ever smaller, and between those that were reached and those that were not."""

from types import SimpleNamespace
from typing import Any

import pytest

from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.planner.smallest_peak import minimise_peak
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.measurement import Measured


class Program:
    """Stands for `Evaluator`: a search comes to `reached(goal)`, which is what its compiler finds too."""

    options, max_compiles = Options(), 16

    def __init__(self, reached, slow_below=0, fixed=0):
        self.reached, self.slow_below, self.fixed, self.asked = reached, slow_below, fixed, []

    def form_state(self, chip, form):
        return self.state(1000)

    def state(self, nbytes):
        return SimpleNamespace(peak=SimpleNamespace(temp_bytes=nbytes), steps=(nbytes,))

    def search(self, form, goal):
        return self.state(self.reached(goal.temp_bytes)), ()

    def is_slow(self, state):
        return state.peak.temp_bytes < self.slow_below

    @property
    def may_compile(self):
        return len(self.asked) < self.max_compiles

    def measure(self, state, refusals):
        self.asked.append(state.peak.temp_bytes)
        return attempt(state.peak.temp_bytes, self.fixed)


def attempt(nbytes, fixed=0) -> Any:
    measured = Measured(argument_bytes=fixed, output_bytes=0, temp_bytes=nbytes, alias_bytes=0, constant_bytes=0)
    return SimpleNamespace(measured=measured, peak_bytes=measured.peak_bytes, target=SimpleNamespace(chip=CHIPS["cpu"]))


def smallest(program) -> int:
    return min(a.peak_bytes for a in minimise_peak(program, attempt(1000), "quick", None))


def test_until_nothing_helps():
    program = Program(lambda goal: max(goal, 30))
    assert smallest(program) == 30
    assert len(program.asked) <= 4


def test_another_way_between_two_goals():
    """Towards 250, the first goal, it begins a way that ends at 370; a little above it another, that ends at 140."""
    program = Program(lambda goal: 140 if 255 <= goal <= 310 else 370 if goal < 600 else 600)
    assert smallest(program) == 140


def test_not_further_than_a_tenth_of_the_peak():
    """Arguments of 1,000 bytes and temporaries of 62: without them the peak would be hardly lower."""
    program = Program(lambda goal: goal, fixed=1000)
    assert [a.peak_bytes for a in minimise_peak(program, attempt(1000, 1000), "quick", None)] == [1250, 1062]


def test_not_slower_than_it_may_be():
    program = Program(lambda goal: goal, slow_below=100)
    assert 100 <= smallest(program) <= 125


@pytest.mark.parametrize(("lower", "compiles"), [(30, True), (97, False)])
def test_another_form_only_if_it_gets_lower(lower, compiles):
    """Another form ended at 100: this one is searched once, and compiled only if that search ends clearly below."""
    program = Program(lambda goal: max(goal, lower))
    found = list(minimise_peak(program, attempt(1000), "small", program.state(100)))
    assert bool(found) == bool(program.asked) == compiles


@pytest.mark.parametrize("compiles", [1, 2, 3])
def test_within_its_compiles(compiles):
    program = Program(lambda goal: goal)
    program.max_compiles = compiles
    smallest(program)
    assert len(program.asked) == compiles
