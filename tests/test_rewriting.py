"""The textual cases, tests/ir/*.mlir: all of what comes out, and that a rewriting pass finds nothing more in it."""

import pytest

from stablehlo_mem.passes import PASSES
from stablehlo_mem.rewriting import RewritingPass
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
    one, bytes_first = REWRITINGS[name]
    _, expected = textual.source_and_expected(name)
    assert rewrite(normal(expected), one, bytes_first=bytes_first) == 0


def test_every_rewriting_pass_has_a_case():
    assert {one for one, _ in REWRITINGS.values()} == {one for one in PASSES if isinstance(one, RewritingPass)}
