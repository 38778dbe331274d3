"""MaxText: its training step, state, data and shardings, in a loop of one's own, in which the mesh is set first."""

import contextlib
import pathlib
import tempfile

import jax
import maxtext
from comparing import compare
from flax import nnx
from flax.core.spmd import logical_axis_rules
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train
from maxtext.utils import maxtext_utils, sharding, train_utils

import stablehlo_mem as shm

SMALL = "base_emb_dim=64 base_num_query_heads=4 base_num_kv_heads=4 head_dim=16 base_mlp_dim=128 vocab_size=256"
SHAPE = "base_num_decoder_layers=2 per_device_batch_size=1 max_target_length=1024 attention=dot_product dtype=float32"
RUN = f"run_name=recipe dataset_type=synthetic enable_checkpointing=false base_output_directory={tempfile.mkdtemp()}"
BASE = pathlib.Path(maxtext.__file__).parent / "configs" / "base.yml"
options = f"hardware=cpu skip_jax_distributed_system=true remat_policy=minimal {SMALL} {SHAPE} {RUN}"
config = pyconfig.initialize(["train", str(BASE), *options.split()])


def losses(budget=None):
    """Of three steps, as MaxText's `train_loop` takes them."""
    _, _, shardings, _, mesh, _, _, loader, rampup, _, state = train_utils.setup_train_loop(config, None)
    model, state = nnx.split(state)
    params_shardings, shardings = sharding.maybe_update_params_sharding_with_opt(config, shardings)
    data_sharding = sharding.get_input_data_sharding(config, mesh)
    step, in_shardings, out_shardings, _, donated = maxtext_utils.get_functional_train_with_signature(
        train.train_step, data_sharding, shardings, model, config, params_shardings
    )
    compiled = jax.jit(step, in_shardings=in_shardings, out_shardings=out_shardings, donate_argnums=donated)
    found, under_budget = [], shm.budget(budget) if budget else contextlib.nullcontext()
    with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules), under_budget as block:
        for _ in range(3):
            state, metrics = compiled(state, loader.load_next_batch(rampup_manager=rampup))
            found.append(metrics["scalar"]["learning/loss"])
    return found, block


plain, _ = losses()

planned, block = losses(budget="32MiB")

compare(plain, planned, block.plans)
