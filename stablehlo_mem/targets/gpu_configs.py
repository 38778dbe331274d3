"""GPUs as XLA's compiler wants them described, so that `devices` can compile for one that is not attached."""

from __future__ import annotations

_H200 = {
    "name": "NVIDIA H200",
    "core_count": 132,
    "fpus_per_core": 128,
    "shared_memory_per_core": 233472,
    "shared_memory_per_block_optin": 232448,
    "memory_bandwidth": 4800 * 10**9,
    "l2_cache_size": 52428800,
    "clock_rate_ghz": 1.98,
    "device_memory_size": 150 * 10**9,
    "major": 9,
    "minor": 0,
}
_H100 = _H200 | {
    "name": "NVIDIA H100 80GB HBM3",
    "memory_bandwidth": 3352 * 10**9,
    "device_memory_size": 85 * 10**9,
}
_A100 = {
    "name": "NVIDIA A100-SXM4-80GB",
    "core_count": 108,
    "fpus_per_core": 64,
    "shared_memory_per_core": 167936,
    "shared_memory_per_block_optin": 166912,
    "memory_bandwidth": 2039 * 10**9,
    "l2_cache_size": 41943040,
    "clock_rate_ghz": 1.41,
    "device_memory_size": 85 * 10**9,
    "major": 8,
    "minor": 0,
}
_GPUS = {"cuda:h200": _H200, "cuda:h100": _H100, "cuda:a100": _A100}
"""Published figures, by the names of the fields of XLA's proto. The memory is about what the driver
reports: the 141 and 80 "GB" of the cards' names are GiB. `chips.py` counts them as GB and so leaves a few per cent."""

_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_memory_per_core}
  threads_per_core_limit: 2048
  core_count: {core_count}
  fpus_per_core: {fpus_per_core}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {memory_bandwidth}
  l2_cache_size: {l2_cache_size}
  clock_rate_ghz: {clock_rate_ghz}
  device_memory_size: {device_memory_size}
  shared_memory_per_block_optin: {shared_memory_per_block_optin}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""


def target_config(chip: str) -> str:
    """The text of XLA's GpuTargetConfigProto for a chip such as "cuda:h200"."""
    return _CONFIG.format_map(_GPUS[chip])
