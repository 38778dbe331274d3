"""Programs over eight devices: the budget is one device's, results and shardings are as before.

The number of devices of the CPU is fixed when JAX starts, so they run in a process of their own.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
WITHIN = {"rows": 0, "causal": 0, "scanned step": 1}
"""Programs that are split within the shards, and the dimension, which lies in parts."""
NAMES = (
    *(
        "nearest",
        "experts",
        "heads",
        "sequence",
        "constrained",
        "mapped heads",
        "mapped sequence",
        "train step",
        "mapped train step",
        "gradient of mapped",
        "gradient of mapped layers",
        "gradient of ring",
    ),
    *WITHIN,
)


@pytest.fixture(scope="module")
def outcomes():
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, "-m", "tests.programs.sharded"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_of_each_device_is_kept(outcomes, name):
    one = outcomes[name]
    assert one["before"] > one["budget"]
    assert one["steps"]
    assert one["fits"], one["refusals"]
    assert one["after"] <= one["budget"]
    assert one["summaries"][0].partition(" (")[0] in one["report"]


@pytest.mark.parametrize("name", NAMES)
def test_results_signature_and_shardings_are_as_before(outcomes, name):
    one = outcomes[name]
    assert one["wrong"] == []
    assert one["same shardings"]
    assert one["same signature"]


# XLA:CPU gathers what top_k looks through along a shared-out dimension, and the profile does not know.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nearest"])
def test_the_profile_counts_what_one_device_holds(outcomes, name):
    one = outcomes[name]
    assert one["temporaries"] / 2 < one["static temporaries"] < 2 * one["temporaries"]


@pytest.mark.parametrize(("name", "dimension"), WITHIN.items())
def test_a_dimension_that_lies_in_parts_is_split_within_each(outcomes, name, dimension):
    splits = [step for step in outcomes[name]["steps"] if step["pass"] == "split-into-loops"]
    assert any(split["dimension"] == dimension for split in splits)
    assert outcomes[name]["more collectives"] == []


@pytest.mark.parametrize("name", ["mapped heads", "mapped sequence", "mapped train step"])
def test_what_each_device_does_is_split_within_it(outcomes, name):
    splits = [step for step in outcomes[name]["steps"] if step["pass"] == "split-into-loops"]
    assert splits
    assert all(split["path"] for split in splits)


@pytest.mark.parametrize("name", ["gradient of mapped", "gradient of ring"])
def test_a_loop_runs_a_shard_map_and_its_gradient_on_chunks(outcomes, name):
    splits = [step for step in outcomes[name]["steps"] if step["pass"] == "split-into-loops"]
    assert any(split["path"] == [] for split in splits)
    assert outcomes[name]["more collectives"] == []


def test_what_a_shard_map_stores_for_its_gradient_is_computed_again_in_that(outcomes):
    steps = outcomes["gradient of mapped layers"]["steps"]
    assert any(step["pass"] == "rematerialise" and step["pair"] for step in steps)


@pytest.mark.parametrize("name", ["kernel on heads", "kernel on a sequence"])
def test_each_device_runs_the_attention_kernel_on_its_part(outcomes, name):
    one = outcomes[name]
    assert one["calls"] == 4
    assert one["shapes"] == [[2, 256, 2, 64]] * 2
    assert one["more collectives"] == []
    assert one["wrong"] == []


def test_jit_plans_for_each_of_the_devices_that_its_arguments_lie_on(outcomes):
    one = outcomes["called"]
    assert one["arguments"] == one["arguments by jax"]
    assert one["before"] > one["budget"] >= one["after"]
    assert "each of 8 devices" in one["report"]
    assert one["donated"]
    assert one["plans"] == 1
    assert not one["wrong"]


def test_inside_another_jit_the_plan_is_for_each_device_too(outcomes):
    one = outcomes["called inside"]
    # All devices have the weights, each an eighth of the rows.
    assert one["arguments"] < one["whole"]
    assert "each of 8 devices" in one["report"]
    assert not one["wrong"]


def test_arrays_on_devices_in_another_order_are_refused_as_by_jax(outcomes):
    ours, of_jax = outcomes["called inside"]["errors"]
    assert ours == of_jax != ""
