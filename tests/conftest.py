"""The tests plan by the figures built in, whatever was measured on the machine they run on."""

import os

os.environ["STABLEHLO_MEM_CALIBRATION"] = ""
