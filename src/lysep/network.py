"""From an ordinary PyTorch classifier to links and a head. Every "cannot be separated" error is raised here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lysep import activations
from lysep.activations import IDENTITY, Activation
from lysep.links import ConvLink, DenseLink, FixedMap, Link, Pool


class ModelError(ValueError):
    """The model cannot be trained by layer separation; the message says which module and what to use instead."""


@dataclass(frozen=True)
class Layer:
    """One linear map of the network with the activation in front of it (the identity in the first layer)."""

    place: str
    activation: Activation
    link: Link
    has_bias: bool

    def features(self, active: Tensor) -> Tensor:
        """P σ(c) from σ(c)."""
        return self.link.fixed.apply(active)


@dataclass(frozen=True)
class Network:
    """The layers of a model, the head last. L is their number, as in the paper."""

    layers: tuple[Layer, ...]
    in_shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def classes(self) -> int:
        return self.layers[-1].link.out_shape[0]

    @property
    def lipschitz(self) -> float:
        """B of Theorems 3.1 and 4.1: the largest Lipschitz constant of the activations between layers."""
        return max(layer.activation.lipschitz for layer in self.layers[1:])


def linear_modules(model: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The modules that hold the parameters, first to last."""
    return [m for _, m in _leaves(model, "") if isinstance(m, nn.Linear | nn.Conv2d)]


def parse(model: nn.Module, in_shape: tuple[int, ...]) -> Network:
    """Take a model apart, for samples of the given shape. Raises ModelError where it cannot be separated."""
    builder = _Builder(in_shape)
    owners: dict[int, str] = {}
    for place, module in _leaves(model, ""):
        for name, parameter in module.named_parameters(recurse=False):
            owner = owners.setdefault(id(parameter), place)
            if owner != place:
                raise ModelError(
                    f"module {place} is module {owner} again, or shares its {name}; every layer needs its own weights."
                )
        builder.add(place, module)
        _refuse_detours(place, module)
    layers = builder.finish()
    dtype, device = _dtype_and_device(model)
    return Network(layers, in_shape, dtype, device)


def refuse_frozen(model: nn.Module) -> None:
    """Training would change what the user has said shall not change."""
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            raise ModelError(
                f"parameter {name} of the model is frozen (requires_grad=False), but layer separation trains every "
                "layer. Unfreeze it, or train the layers above it on its outputs."
            )


def _leaves(model: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        if prefix:
            yield prefix, model
            return
        raise ModelError(
            f"model is a {type(model).__name__}, not an nn.Sequential. Layer separation follows a chain of "
            "layers; write the network as nn.Sequential(...)."
        )
    _refuse_detours(prefix, model)
    for name, child in model._modules.items():  # named_children() would pass over a module that occurs twice
        if child is not None:
            yield from _leaves(child, f"{prefix}.{name}" if prefix else name)


def _refuse_detours(place: str, module: nn.Module) -> None:
    """Whatever PyTorch would run on the way through a module and we would not."""
    where = f"module {place} ({type(module).__name__})" if place else f"the model ({type(module).__name__})"
    if module._forward_hooks or module._forward_pre_hooks:
        raise ModelError(f"{where} has forward hooks, which would be passed by. Remove them.")
    if "forward" in vars(module):
        raise ModelError(f"{where} has a forward of its own, set on the instance, which would be passed by. Remove it.")


def _dtype_and_device(model: nn.Module) -> tuple[torch.dtype, torch.device]:
    kinds = {(p.dtype, p.device) for p in model.parameters()}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ModelError(f"the model's parameters are of several kinds ({found}); use model.to(dtype, device).")
    dtype, device = kinds.pop()
    if device.type == "mps":
        raise ModelError("the model is on mps, which has no float64 for the sums and solves: use model.cpu().")
    if dtype not in (torch.float32, torch.float64):
        raise ModelError(f"the model is in {dtype}; layer separation needs float32 or float64: model.float().")
    return dtype, device


_INSTEAD = {
    "MaxPool2d": "Use nn.AvgPool2d: pooling has to be linear.",
    "AdaptiveAvgPool2d": "Use nn.AvgPool2d with the kernel size that gives the same output.",
    "Dropout": "Leave it out: the objective must not change from one evaluation to the next.",
    "Softmax": "Leave it out: the softmax belongs to the loss, the model returns logits.",
    "LogSoftmax": "Leave it out: the softmax belongs to the loss, the model returns logits.",
    "PReLU": "Use nn.LeakyReLU with a fixed slope.",
    "Softplus": "Use its default threshold: below 20 it jumps, and no Lipschitz constant holds.",
}


def _instead(module: nn.Module) -> str:
    name = type(module).__name__
    if name in _INSTEAD:
        return _INSTEAD[name]
    if "Norm" in name:
        return "Leave it out and standardize the inputs instead: statistics over a batch tie the samples together."
    if isinstance(module, nn.Linear | nn.Conv2d):
        plain = "Linear" if isinstance(module, nn.Linear) else "Conv2d"
        return f"Use a plain nn.{plain}, initialized and without parametrization."
    return f"Supported: Linear, Conv2d, AvgPool2d, Flatten, Identity and {', '.join(activations.SUPPORTED)}."


@dataclass
class _Builder:
    """Collects what lies between two linear maps until the next one closes a layer."""

    shape: tuple[int, ...]
    layers: list[Layer] = field(default_factory=list)
    last: tuple[str, nn.Module] | None = None
    activation: tuple[str, Activation] | None = None
    pools: list[Pool] = field(default_factory=list)
    before_pools: tuple[int, ...] = ()
    flattened: bool = False

    def __post_init__(self) -> None:
        self.before_pools = self.shape

    def add(self, place: str, module: nn.Module) -> None:
        if type(module) is nn.Identity:
            return
        self.last = (place, module)
        if type(module) is nn.Linear:
            self._add_linear(place, module)
        elif type(module) is nn.Conv2d:
            self._add_conv(place, module)
        elif type(module) is nn.AvgPool2d:
            self._add_pool(place, module)
        elif type(module) is nn.Flatten:
            self._add_flatten(place, module)
        elif (activation := activations.from_module(module)) is not None:
            self._add_activation(place, module, activation)
        else:
            raise ModelError(f"module {place} ({module}) cannot be separated. {_instead(module)}")

    def finish(self) -> tuple[Layer, ...]:
        if self.last is None:
            raise ModelError("the model is empty; it needs hidden layers and a Linear head.")
        place, module = self.last
        if type(module) is not nn.Linear:
            raise ModelError(
                f"the model ends with module {place} ({module}), so the head is missing: the last module must be an "
                "nn.Linear that returns one logit per class."
            )
        if len(self.layers) < 2:
            raise ModelError(
                f"the model has one linear layer, module {place} ({module}), and nothing to separate: add a hidden "
                "layer and an activation, or fit it directly with L-BFGS."
            )
        if self.shape[0] < 2:
            raise ModelError(
                f"the head, module {place} ({module}), has one output. Two classes need two logits: "
                f"nn.Linear({module.in_features}, 2)."
            )
        return tuple(self.layers)

    def _close(self, place: str, module: nn.Module, link: Link) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta or parameter.is_inference():
                kind = "on the meta device and holds nothing" if parameter.is_meta else "an inference tensor"
                raise ModelError(
                    f"parameter {name} of module {place} ({module}) is {kind}, so it cannot be trained. Make the model "
                    "on a real device, outside torch.inference_mode()."
                )
            if not bool(torch.isfinite(parameter.detach()).all()):
                raise ModelError(f"parameter {name} of module {place} ({module}) holds NaN or infinite values.")
        activation = IDENTITY if self.activation is None else self.activation[1]
        self.layers.append(Layer(place, activation, link, getattr(module, "bias", None) is not None))
        self.shape = self.before_pools = link.out_shape
        self.activation, self.pools, self.flattened = None, [], False

    def _fixed(self) -> FixedMap:
        return FixedMap(self.before_pools, tuple(self.pools), self.flattened)

    def _add_linear(self, place: str, module: nn.Linear) -> None:
        if len(self.shape) != 1:
            raise ModelError(
                f"module {place} ({module}) gets samples of shape {self.shape}. Put nn.Flatten() in front of it."
            )
        if module.in_features != self.shape[0]:
            raise ModelError(
                f"module {place} ({module}) takes {module.in_features} features, but gets {self.shape[0]}."
            )
        device = module.weight.device
        self._close(place, module, DenseLink(self._fixed(), module.in_features, module.out_features, device))

    def _add_conv(self, place: str, module: nn.Conv2d) -> None:
        self._need_image(place, module)
        if module.in_channels != self.shape[0]:
            raise ModelError(
                f"module {place} ({module}) takes {module.in_channels} channels, but gets {self.shape[0]} "
                f"(samples of shape {self.shape})."
            )
        if module.groups != 1:
            raise ModelError(f"module {place} ({module}) has groups={module.groups}. Use groups=1.")
        if module.padding_mode != "zeros":
            raise ModelError(
                f"module {place} ({module}) has padding_mode={module.padding_mode!r}. Use padding_mode='zeros'."
            )
        padding, extra = _conv_padding(module)
        link = ConvLink(
            self._fixed(),
            module.in_channels,
            module.out_channels,
            _pair(module.kernel_size),
            _pair(module.stride),
            padding,
            _pair(module.dilation),
            extra,
            module.weight.device,
        )
        if min(link.out_shape) < 1:
            raise ModelError(f"module {place} ({module}) leaves nothing of samples of shape {self.shape}.")
        self._close(place, module, link)

    def _add_pool(self, place: str, module: nn.AvgPool2d) -> None:
        self._need_image(place, module)
        self.pools.append(as_pool(module))
        try:
            self.shape = self._fixed().pooled_shape
        except RuntimeError as error:  # PyTorch's own words on kernel, padding and size
            raise ModelError(f"module {place} ({module}) does not fit samples of {self.shape}: {error}") from error

    def _add_flatten(self, place: str, module: nn.Flatten) -> None:
        if module.start_dim != 1 or module.end_dim not in (-1, len(self.shape)):
            raise ModelError(f"module {place} ({module}) flattens only part of a sample. Use nn.Flatten().")
        if len(self.shape) > 1:
            self.flattened = True
            self.shape = self._fixed().out_shape

    def _add_activation(self, place: str, module: nn.Module, activation: Activation) -> None:
        if self.activation is not None:
            raise ModelError(
                f"module {place} ({module}) is a second activation after module {self.activation[0]} "
                f"({self.activation[1].name}). Keep one, or put a Linear or Conv2d between them."
            )
        if self.pools:
            raise ModelError(
                f"module {place} ({module}) comes after pooling. Put the activation in front of the pooling: "
                "what is pooled must be what the auxiliary variables hold, activated."
            )
        self.activation = (place, activation)

    def _need_image(self, place: str, module: nn.Module) -> None:
        if len(self.shape) != 3:
            raise ModelError(
                f"module {place} ({module}) needs samples of shape (channels, height, width), but gets {self.shape}."
            )


def as_pool(module: nn.AvgPool2d) -> Pool:
    return Pool(
        _pair(module.kernel_size),
        _pair(module.kernel_size if module.stride is None else module.stride),
        _pair(module.padding),
        module.ceil_mode,
        module.count_include_pad,
        module.divisor_override,
    )


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _conv_padding(module: nn.Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Padding on both sides, and what padding="same" adds at the far side where the kernel's extent is even."""
    if not isinstance(module.padding, str):
        return _pair(module.padding), (0, 0)
    if module.padding == "valid":
        return (0, 0), (0, 0)
    totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return (totals[0] // 2, totals[1] // 2), (totals[0] % 2, totals[1] % 2)
