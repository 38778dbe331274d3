"""MaxText: its training loop, unchanged, runs a step that was compiled ahead of time within a budget.

MaxText compiles steps ahead of time by `train_compile`, and runs them with `compiled_trainstep_file=...`. This makes
such a file. Where the mesh is `train_compile.get_topology_mesh(config)`, it is made on a machine without the TPUs.
"""

import pathlib
import tempfile

import jax
import maxtext
import numpy as np
from comparing import compare
from flax.core.spmd import logical_axis_rules
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train, train_compile
from maxtext.utils import maxtext_utils, sharding

import stablehlo_mem as shm

FOLDER = pathlib.Path(tempfile.mkdtemp())
SMALL = "base_emb_dim=64 base_num_query_heads=4 base_num_kv_heads=4 head_dim=16 base_mlp_dim=128 vocab_size=256"
RUN = f"steps=3 dataset_type=synthetic enable_checkpointing=false base_output_directory={FOLDER} run_name=recipe"
SHAPE = "base_num_decoder_layers=2 per_device_batch_size=1 max_target_length=1024 attention=dot_product dtype=float32"


def config_of(*more):
    base = pathlib.Path(maxtext.__file__).parent / "configs" / "base.yml"
    arguments = f"hardware=cpu skip_jax_distributed_system=true remat_policy=minimal {SMALL} {RUN} {SHAPE}".split()
    return pyconfig.initialize(["train", str(base), *arguments, *more])


def compile_step(config, file, budget):
    """As `train_compile.main`, but for `shm.jit`."""
    mesh = maxtext_utils.get_mesh_from_config(config)
    arguments, _, state_shardings, _, model = train_compile.get_shaped_inputs(mesh, config)
    params_shardings, state_shardings = sharding.maybe_update_params_sharding_with_opt(config, state_shardings)
    step, in_shardings, out_shardings, _, donated = maxtext_utils.get_functional_train_with_signature(
        train.train_step,
        sharding.get_input_data_sharding(config, mesh),
        state_shardings,
        model,
        config,
        params_shardings,
    )
    with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules):
        small = shm.jit(step, budget, in_shardings=in_shardings, out_shardings=out_shardings, donate_argnums=donated)
        train_compile.save_compiled(small.lower(*arguments).compile(), file)
        return small.plan(*arguments)


def weights_after(config):
    """The model's weights after `steps` steps of MaxText's own loop."""
    state = train.train_loop(config, None)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state) if leaf.dtype == np.float32])


plain = weights_after(config_of())

file = FOLDER / "train_step.pickle"
plan = compile_step(config_of(), file, budget="32MiB")
planned = weights_after(config_of(f"compiled_trainstep_file={file}"))

compare(plain, planned, [plan], rtol=1e-3)
