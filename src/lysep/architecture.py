"""A network's architecture as data: what a saved model holds instead of code, and what an export is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lysep.fields import Fields

_LARGEST = 2**31 - 1
_LARGEST_WINDOW = 2**16  # of kernels, strides and paddings
_DEEPEST_NESTING = 20
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

Reader = Callable[[Fields, str], Any]


def _size(fields: Fields, name: str) -> int:
    return fields.integer(name, 1, _LARGEST)


def _truth(fields: Fields, name: str) -> bool:
    return fields.truth(name)


def _number(fields: Fields, name: str) -> float:
    return fields.number(name)


def _pair(lowest: int) -> Reader:
    def read(fields: Fields, name: str) -> tuple[int, ...]:
        values = fields.integers(name, lowest, _LARGEST_WINDOW)
        if len(values) != 2:
            raise ValueError(f"{name} must be two integers, but is {list(values)}.")
        return values

    return read


def _padding(fields: Fields, name: str) -> str | tuple[int, ...]:
    value = fields.raw(name)
    return value if isinstance(value, str) and value in ("same", "valid") else _pair(0)(fields, name)


def _divisor(fields: Fields, name: str) -> int | None:
    return None if fields.raw(name) is None else fields.integer(name, -_LARGEST, _LARGEST)


def _approximation(fields: Fields, name: str) -> str:
    value = fields.text(name)
    if value not in ("none", "tanh"):
        raise ValueError(f"{name} must be 'none' or 'tanh', but is {value!r}.")
    return value


# Of every module its constructor's arguments, each with how it is read back. They are attributes of the module too.
_MODULES: dict[type[nn.Module], dict[str, Reader]] = {
    nn.Linear: {"in_features": _size, "out_features": _size, "bias": _truth},
    nn.Conv2d: {
        "in_channels": _size,
        "out_channels": _size,
        "kernel_size": _pair(1),
        "stride": _pair(1),
        "padding": _padding,
        "dilation": _pair(1),
        "bias": _truth,
    },
    nn.AvgPool2d: {
        "kernel_size": _pair(1),
        "stride": _pair(1),
        "padding": _pair(0),
        "ceil_mode": _truth,
        "count_include_pad": _truth,
        "divisor_override": _divisor,
    },
    nn.Flatten: {},
    nn.Identity: {},
    nn.Tanh: {},
    nn.Sigmoid: {},
    nn.ReLU: {},
    nn.LeakyReLU: {"negative_slope": _number},
    nn.ELU: {"alpha": _number},
    nn.SiLU: {},
    nn.GELU: {"approximate": _approximation},
    nn.Softplus: {"beta": _number, "threshold": _number},
}
_BY_NAME = {kind.__name__: kind for kind in _MODULES}
_ON_DEVICE = (nn.Linear, nn.Conv2d)


@dataclass(frozen=True)
class Architecture:
    """What a chain of modules is made of, without their parameters. Called, it makes one, freshly started."""

    data: dict[str, Any]
    dtype: str

    @classmethod
    def of(cls, model: nn.Module) -> Architecture:
        dtype = next(model.parameters()).dtype
        return cls(_describe("", model), str(dtype).removeprefix("torch."))

    @classmethod
    def from_dict(cls, data: Any, where: str = "architecture") -> Architecture:
        fields = Fields(data, where)
        dtype = fields.text("dtype")
        if dtype not in _DTYPES:
            raise ValueError(f"{where}.dtype must be one of {', '.join(_DTYPES)}, but is {dtype!r}.")
        architecture = cls(fields.raw("network"), dtype)
        architecture.empty()  # every error of the description comes to light here
        return architecture

    def to_dict(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "network": self.data}

    def empty(self) -> nn.Sequential:
        """The network with parameters that have shapes and no memory: a description may say any size."""
        return self._build("meta")

    def __call__(self) -> nn.Sequential:
        return self._build("cpu")

    def _build(self, device: str) -> nn.Sequential:
        model = _build(Fields(self.data, "architecture.network"), device, _DTYPES[self.dtype], 0)
        if not isinstance(model, nn.Sequential):
            raise ValueError("architecture.network must be a Sequential.")
        return model


def leaves(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of a chain, first to last."""
    if isinstance(model, nn.Sequential):
        for child in model:
            yield from leaves(child)
    else:
        yield model


def _describe(name: str, module: nn.Module) -> dict[str, Any]:
    kind = {"name": name, "kind": type(module).__name__}
    if isinstance(module, nn.Sequential):
        children = [_describe(name, child) for name, child in module.named_children()]
        return {**kind, "kind": "Sequential", "modules": children}
    if type(module) not in _MODULES:
        raise ValueError(f"a {type(module).__name__} cannot be written as data; known are {', '.join(_BY_NAME)}.")
    return kind | {name: _argument(module, name) for name in _MODULES[type(module)]}


def _argument(module: nn.Module, name: str) -> Any:
    value = getattr(module, name)
    if name == "bias":
        return value is not None
    if _MODULES[type(module)][name] in (_number, _size, _truth, _approximation, _divisor) or isinstance(value, str):
        return value
    return list(value) if isinstance(value, tuple | list) else [value, value]


def _build(fields: Fields, device: str, dtype: torch.dtype, nesting: int) -> nn.Module:
    kind = fields.text("kind")
    if kind == "Sequential":
        if nesting > _DEEPEST_NESTING:
            raise ValueError(f"{kind} is nested too deeply.")
        model = nn.Sequential()
        for child in fields.objects("modules"):
            name = child.text("name")
            if not name or "." in name or hasattr(model, name):
                raise ValueError(f"{name!r} cannot name a module, or names two.")
            model.add_module(name, _build(child, device, dtype, nesting + 1))
        return model
    if kind not in _BY_NAME:
        raise ValueError(f"the module kind {kind!r} is unknown; known are {', '.join(_BY_NAME)}.")
    module = _BY_NAME[kind]
    arguments = {name: read(fields, name) for name, read in _MODULES[module].items()}
    return module(**arguments, **({"device": device, "dtype": dtype} if module in _ON_DEVICE else {}))
