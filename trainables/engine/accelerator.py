"""What private steps need of a GPU: products with all digits, repeatable kernels, and a machine that still works.

None of this has run on a GPU. The tests run it on a pretended one, and `make gpu-check` runs it on a real one.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import torch

from trainables.errors import GateError

__all__ = ["device_kind", "full_float32", "gpu_failed", "is_full_float32", "repeatable"]

_BACKENDS: Final[Any] = torch.backends  # torch declares no types of these settings
_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"  # without it, cuBLAS chooses among kernels by what else runs
_FULL: Final = "ieee"


def full_float32() -> None:
    """Switch off TF32 and other float32 products with fewer digits, for which the rounding bounds do not hold.

    A model may switch them on in any pass. So this is called before each pass and before each sum.

    Raises:
        GateError: torch did not take the setting.
    """
    # Every setting of torch is written: a general one does not replace a special one, and the older functions, which
    # come last, refuse to answer while the settings differ.
    for each in (_BACKENDS, _BACKENDS.cudnn, _BACKENDS.mkldnn, *_products()):
        each.fp32_precision = _FULL
    torch.set_float32_matmul_precision("highest")
    _BACKENDS.cudnn.allow_tf32 = False
    if not is_full_float32():
        raise GateError(
            "float32-reduced",
            "torch still computes float32 products with reduced precision, such as TF32. Use the pinned version of "
            "torch.",
        )


def is_full_float32() -> bool:
    """Return whether float32 products have all digits: whether nothing was switched on since `full_float32`."""
    return all(each.fp32_precision == _FULL for each in _products())


def _products() -> tuple[Any, ...]:
    cuda, cudnn, mkldnn = _BACKENDS.cuda, _BACKENDS.cudnn, _BACKENDS.mkldnn
    return cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv, mkldnn.rnn


def repeatable(device: torch.device, *, strictly: bool) -> None:
    """Let a GPU add in a fixed order. Do nothing for a CPU, which does so by itself.

    With `strictly`, an operation that has no such kernel raises an error. Otherwise torch warns of it. This must be
    called before the first product on the GPU.
    """
    if device.type == "cpu":
        return
    os.environ.setdefault(_WORKSPACE, ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=not strictly)
    _BACKENDS.cudnn.benchmark = False


def device_kind(device: torch.device) -> str:
    """Return what decides how a device rounds, apart from the settings above: its kind and the versions of software.

    Kinds of CPU are not told apart, because the machines of a cluster often differ.
    """
    if device.type == "cpu":
        return f"cpu, torch {torch.__version__}, numpy {np.__version__}"
    kind = torch.cuda.get_device_properties(device)
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {_BACKENDS.cudnn.version()}"
    return f"{kind.name}, {kind.multi_processor_count} multiprocessors, {versions}"


def gpu_failed() -> bool:
    """Return whether this process has used a GPU that no longer computes. Some errors of CUDA end its use for good."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.synchronize()
        return float(torch.ones(2, device="cuda:0").sum()) != 2.0
    except Exception:  # noqa: BLE001 - whatever it raises, the GPU does not compute
        return True
