"""Minimum cuts of networks, against all cuts of small ones."""

import itertools
import random

import pytest

from stablehlo_mem.utils.minimum_cut import NEVER, Network, minimum_cut


def capacity(network, side):
    """Of all that leads from a side with the source to the rest."""
    inside = {*side, network.source}
    return sum(c for (tail, head), c in network.capacities.items() if tail in inside and head not in inside)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_cut_is_less(seed):
    draw = random.Random(seed)
    network = Network(6)
    for tail, head in itertools.permutations(range(6), 2):
        if draw.random() < 0.4:
            network.connect(tail, head, draw.choice([draw.random(), NEVER]))
    for node in range(6):
        network.connect(node, network.sink, draw.random())
    network.connect(network.source, draw.randrange(6), NEVER)
    found = capacity(network, minimum_cut(network))
    sides = itertools.chain.from_iterable(itertools.combinations(range(6), n) for n in range(7))
    assert found == pytest.approx(min(capacity(network, side) for side in sides), abs=1e-6)


def test_what_costs_nothing_is_not_cut():
    network = Network(1)
    network.connect(network.source, 0, NEVER)
    network.connect(0, network.sink, 0.0)
    assert minimum_cut(network) == {0}
