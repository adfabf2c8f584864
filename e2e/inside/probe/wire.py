"""Rows and samples as JSON values: arrays are base64 of zlib of little-endian bytes, 64-bit values are hex."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import torch


def packed(tensor: torch.Tensor) -> str:
    data = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return base64.b64encode(zlib.compress(data, 1)).decode()


def hexed(value: torch.Tensor) -> str:
    return f"{int(np.asarray(value.cpu()).view(np.uint64)):016x}"
