"""The textual cases, tests/ir/*.mlir: all of what comes out, and that a rewriting pass finds nothing more in it."""

import pytest

from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.ir.bindings import clone_module, fingerprint
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner.search_state import take
from stablehlo_mem.rewriting.attention_pass import AttentionPass
from stablehlo_mem.rewriting.rewriting_pass import RewritingPass
from stablehlo_mem.targets.chips import CHIPS
from tests import textual
from tests.support import normal, rewrite

REWRITINGS = {
    name: found for name in textual.CASES if (found := textual.rewriting(textual.source_and_expected(name)[0]))
}


@pytest.mark.parametrize("name", textual.CASES)
def test_text(name):
    expected, actual = textual.expected_and_actual(name)
    assert actual == expected


@pytest.mark.parametrize("name", REWRITINGS)
def test_finds_nothing_in_what_it_made(name):
    one, prefer_memory = REWRITINGS[name]
    _, expected = textual.source_and_expected(name)
    assert rewrite(normal(expected), one, prefer_memory=prefer_memory) == 0


def test_every_rewriting_pass_has_a_case():
    assert {one for one, _ in REWRITINGS.values()} == {one for one in PASSES if isinstance(one, RewritingPass)}


def candidates(name: str, one: RewritingPass) -> tuple[object, list[Candidate]]:
    """A case in normal form, and what a pass would do to it, for time or for memory, on two chips."""
    _, prefer_memory = REWRITINGS[name]
    module = normal(textual.source_and_expected(name)[0])
    graph, found = entry_graph(module), []
    for chip in (CHIPS["cpu"], CHIPS["tpu:v5e"]):
        goal = Goal(chip, Options(numerics="relaxed"), 0, prefer_memory=prefer_memory)
        found += [*one.cheapen(graph, goal), *one.propose(graph, find_peak(graph, chip), goal)]
    return module, [item for item in found if isinstance(item, Candidate)]


@pytest.mark.parametrize("one", [p for p in PASSES if isinstance(p, RewritingPass)], ids=lambda one: one.name)
def test_a_candidate_edits_a_copy_as_its_step_does(one):
    compared = 0
    # Pallas' kernels are not in texts, as they differ from one jaxlib to the next: cuDNN's cases are its own too.
    own = AttentionPass if isinstance(one, AttentionPass) else type(one)
    for name in (name for name, (other, _) in REWRITINGS.items() if isinstance(other, own)):
        module, found = candidates(name, one)
        for candidate in found:
            edited, stepped = clone_module(module), clone_module(module)
            take(edited, candidate.step, (), candidate.apply_to_copy)
            take(stepped, candidate.step, ())
            assert candidate.apply_to_copy is not None
            assert fingerprint(edited) == fingerprint(stepped) != fingerprint(module)
            compared += 1
    assert compared
