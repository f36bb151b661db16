"""A pretended GPU for machines without one: tensors with real values on the CPU that say they are on `cuda:0`.

It finds a tensor that stayed on the CPU, a copy between host and GPU, a wait of the host, numbers from a GPU's own
generator, products in TF32, and, with `rounds_by_shape`, sums that depend on the number of rows of a pass. It does not
find what only a real GPU shows: other rounding, atomics, streams, memory. `make gpu-check` looks for these.
"""

# ruff: noqa: ANN401 - what torch hands to a dispatch may be anything
from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

__all__ = ["GPU", "Work", "pretended_gpu", "real"]

GPU = torch.device("cuda", 0)

_TAKE_BOTH = {"copy_", "_to_copy", "index", "index_put_", "index_put", "_index_put_impl_"}  # indices may be on the CPU
_WAITS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "_unique2", "is_nonzero"}
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "convolution"}
_DRAWS = {"normal_", "uniform_", "random_", "rand", "randn", "randint", "randperm", "bernoulli_", "multinomial"}
_UNIT = 2.0**-22  # two units in the last place of a float32


@dataclass
class Work:
    """What the host and the GPU exchanged: waits of the host by place, and bytes by place in both directions."""

    waits: Counter[str] = field(default_factory=Counter)
    to_gpu: Counter[str] = field(default_factory=Counter)
    to_host: Counter[str] = field(default_factory=Counter)

    def reset(self) -> None:
        """Forget everything."""
        for each in (self.waits, self.to_gpu, self.to_host):
            each.clear()

    @property
    def all_waits(self) -> int:
        """Number of times that the host waits for the GPU, copies to the host among them."""
        return sum(self.waits.values())


class _OnGpu(Tensor):
    """Tensor that says it is on the GPU. `value` has its numbers, on the CPU."""

    value: Tensor

    @staticmethod
    def __new__(cls: type[_OnGpu], value: Tensor) -> _OnGpu:
        assert not isinstance(value, _OnGpu)
        shape = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        made: _OnGpu = Tensor._make_subclass(cls, shape, False, dispatch_device=False, device_for_backend_keys=GPU)
        made.value = value
        return made

    def __init__(self, value: Tensor) -> None:
        pass

    device = property(lambda _: GPU)  # type: ignore[assignment]
    is_cuda = property(lambda _: True)  # type: ignore[assignment]
    is_meta = property(lambda _: False)  # type: ignore[assignment]

    def numpy(self, *_: object, **__: object) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def tolist(self) -> Any:
        _running().work.waits[f"tolist {_place()}"] += 1
        return self.value.tolist()

    def data_ptr(self) -> int:
        return self.value.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copied: Tensor = _OnGpu(self.value.detach().clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        return memo.setdefault(id(self), copied)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _running().run(func, args, kwargs or {})


def real(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor on the CPU, from wherever it is."""
    return tensor.value if isinstance(tensor, _OnGpu) else tensor


class _Mode(TorchDispatchMode):
    def __init__(self, *, rounds_by_shape: bool) -> None:
        super().__init__()
        self.work = Work()
        self._rounds_by_shape = rounds_by_shape

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute one operation on the real values."""
        if func is torch.ops.prim.device.default:
            return GPU
        name = func._schema.name.split("::")[-1]
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        ours = [each for each in tensors if isinstance(each, _OnGpu)]
        asked = kwargs.get("device")
        on_gpu = asked is not None and torch.device(asked).type in ("cuda", "meta")
        if not ours and not on_gpu:
            return func(*args, **kwargs)
        self._refuse(name, tensors, to_gpu=on_gpu or (bool(ours) and asked is None))
        self._note(name, args, tensors, goes_to=asked)
        plain_args, plain = tree_map(real, args), tree_map(real, kwargs)
        if asked is not None:
            plain["device"] = torch.device("cpu")
        if name in _PRODUCTS and _fewer_digits(name):
            plain_args = tree_map(_tf32, plain_args)
        with torch.no_grad():
            found = func(*plain_args, **plain)
        if self._rounds_by_shape and name in _PRODUCTS and found.dtype == torch.float32:
            rows = found.shape[-2 if found.dim() < 4 else 0]
            found.add_(_UNIT * (rows // 16 % 3 - 1))
        return self._wrapped(func, args, kwargs, found, stays=on_gpu or asked is None)

    def _refuse(self, name: str, tensors: list[Tensor], *, to_gpu: bool) -> None:
        if name in _DRAWS and to_gpu:
            raise RuntimeError(f"a GPU's own generator would draw: {name} at {_place()}")
        apart = [each for each in tensors if not isinstance(each, _OnGpu) and each.dim() > 0]
        if apart and len(apart) < len(tensors) and name not in _TAKE_BOTH:
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} at {_place()}")

    def _note(self, name: str, args: Any, tensors: list[Tensor], *, goes_to: Any) -> None:
        by_mask = name == "index" and any(each.dtype == torch.bool for each in tensors[1:])
        if name in _WAITS or by_mask:
            self.work.waits[f"{name} {_place()}"] += 1
        if name not in ("copy_", "_to_copy"):
            return
        source = args[1] if name == "copy_" else args[0]
        if name == "copy_" or goes_to is None:  # without a device, a tensor stays where it is
            ends = isinstance(args[0], _OnGpu)
        else:
            ends = torch.device(goes_to).type == "cuda"
        size, place = source.numel() * source.element_size(), f"{name} {_place()}"
        if ends and not isinstance(source, _OnGpu):
            self.work.to_gpu[place] += size
        elif not ends and isinstance(source, _OnGpu):
            self.work.to_host[place] += size
            self.work.waits[place] += 1

    def _wrapped(self, func: Any, args: Any, kwargs: dict[str, Any], found: Any, *, stays: bool) -> Any:
        """Return the results as tensors on the GPU. What an operation writes to, it returns itself."""
        returns = func._schema.returns

        def wrap(value: Any, place: int) -> Any:
            if not isinstance(value, Tensor):
                return value
            alias = returns[place].alias_info if place < len(returns) else None
            if alias is not None and alias.is_write:
                for given, declared in zip(args, func._schema.arguments, strict=False):
                    if declared.alias_info is not None and declared.alias_info.before_set & alias.before_set:
                        return given
                for declared in func._schema.arguments:
                    if declared.name in kwargs and declared.alias_info is not None and declared.alias_info.is_write:
                        return kwargs[declared.name]
            return _OnGpu(value) if stays else value

        if isinstance(found, (tuple, list)):
            places = range(len(found)) if len(returns) > 1 else [0] * len(found)
            return type(found)(
                wrap(each, place)
                if isinstance(each, Tensor)
                else tree_map(lambda value, at=place: wrap(value, at), each)
                for place, each in zip(places, found, strict=True)
            )
        return wrap(found, 0)


def _fewer_digits(name: str) -> bool:
    """Return whether torch is set to TF32 for this product."""
    setting = torch.backends.cudnn.conv if name == "convolution" else torch.backends.cuda.matmul
    return setting.fp32_precision == "tf32"


def _tf32(value: Any) -> Any:
    """Drop the 13 lowest bits of float32 numbers, as TF32 does with what it multiplies."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return value
    return (value.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


_MODES: list[_Mode] = []


def _running() -> _Mode:
    return _MODES[-1]


def _place() -> str:
    """Return the line of ours that runs, so that a message says where to look."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        folder, ours, name = frame.f_code.co_filename.rpartition("/trainables/")
        if ours and not folder.endswith("/tests"):
            return f"{name}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


@contextlib.contextmanager
def pretended_gpu(*, rounds_by_shape: bool = False) -> Iterator[Work]:
    """Pretend that torch finds one GPU. Yield what the host and the GPU exchange.

    With `rounds_by_shape`, the products of float32 matrices round differently with another number of rows, as kernels
    of a GPU may.
    """
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "empty_cache": lambda: None,
        "synchronize": lambda *_: None,
        "get_device_properties": lambda *_: SimpleNamespace(name="pretended", multi_processor_count=1),
    }
    flags = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    make = torch.tensor

    def tensor(values: Any, *, device: Any = None, **others: Any) -> Tensor:  # torch's own asks for a real GPU
        return make(values, **others) if device is None else make(values, **others).to(device)

    mode = _Mode(rounds_by_shape=rounds_by_shape)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    _MODES.append(mode)
    try:
        no_cudnn = mock.patch.object(torch.backends.cudnn, "is_acceptable", return_value=False)
        with mock.patch.multiple(torch.cuda, **answers), mock.patch.object(torch, "tensor", tensor), no_cudnn, mode:
            yield mode.work
    finally:
        _MODES.pop()
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])
