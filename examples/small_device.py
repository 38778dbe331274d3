"""A program made to fit a small device, written to a file, and run by a process that has jax and nothing of this."""

import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import stablehlo_mem as shm

FRAMES, WIDTH = 8192, 64


def summarise(frames):
    """Attention of every frame of a recording to every other, and its mean."""
    weights = jax.nn.softmax(frames @ frames.T / WIDTH**0.5)
    return (weights @ frames).mean(0)


RUNNER = """
import sys
import jax, jax.export, numpy as np
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
np.save(sys.argv[3], jax.jit(program.call)(np.load(sys.argv[2])))
assert "stablehlo_mem" not in sys.modules
"""

exported = jax.export.export(jax.jit(summarise), platforms=["cpu"])(jax.ShapeDtypeStruct((FRAMES, WIDTH), jnp.float32))
small = shm.optimize(exported, "16MiB", target="cpu")

before, after = (shm.profile(program, target="cpu").measured.peak_bytes / 2**20 for program in (exported, small))
print(f"reported peak: {before:.0f} MiB as written, {after:.0f} MiB optimised, budget 16 MiB")
assert after <= 16 < before

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "summarise.bin").write_bytes(small.serialize())
frames = np.random.default_rng(0).normal(size=(FRAMES, WIDTH)).astype(np.float32)
np.save(folder / "frames.npy", frames)
names = [str(folder / name) for name in ("summarise.bin", "frames.npy", "summary.npy")]
subprocess.run([sys.executable, "-c", RUNNER, *names], check=True)
difference = np.abs(np.load(names[2]) - summarise(frames)).max()
print(
    f"{(folder / 'summarise.bin').stat().st_size / 1024:.0f} KiB, run without the library; difference {difference:.1e}"
)
assert difference < 1e-5
