"""A model of Equinox, made small enough, written to a file and run by a process that has JAX and nothing else."""

import pathlib
import subprocess
import sys
import tempfile

import equinox as eqx
import jax
import numpy as np
from comparing import compare

import stablehlo_mem as shm

tokens = jax.random.normal(jax.random.key(0), (1024, 64))
model = eqx.nn.MultiheadAttention(num_heads=4, query_size=64, key=jax.random.key(1))
arrays, functions = eqx.partition(model, eqx.is_array)


@jax.jit
def attend(arrays, x):
    return eqx.combine(arrays, functions)(x, x, x)


exported = jax.export.export(attend, platforms=["cpu"])(arrays, tokens)
plan = shm.plan(exported, "8MiB", target="cpu")
small = shm.flattened(plan.result)  # without it: ValueError: Cannot serialize PyTreeDef ...

RUNNER = """
import sys
import jax.export, numpy as np
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
leaves = np.load(sys.argv[2])
np.save(sys.argv[3], program.call(*leaves.values())[0])
"""

folder = pathlib.Path(tempfile.mkdtemp())
files = [str(folder / name) for name in ("attend.bin", "leaves.npz", "results.npy")]
pathlib.Path(files[0]).write_bytes(small.serialize())
np.savez(files[1], *jax.tree.leaves((arrays, tokens)))
subprocess.run([sys.executable, "-c", RUNNER, *files], check=True)

compare(attend(arrays, tokens), np.load(files[2]), [plan], rtol=1e-5)
