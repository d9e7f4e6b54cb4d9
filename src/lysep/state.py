"""The variables of the separated problem, as a value: made from a model, advanced by sweeps, written back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lysep.arithmetic import exact
from lysep.data import Batch, Source, as_tensor, check_weights
from lysep.network import ModelError, Network, linear_modules, parse


@dataclass(frozen=True, eq=False)
class State:
    """Θ = {W_l, b_l, c_l} together with what it is evaluated on. Treat it as immutable: a sweep makes a new one.

    `weights`, `biases` and `aux` have one entry a link (the hidden layers, first to last), parameters in PyTorch's own
    layout; a bias is None where the module has none. `aux[l]` is c_l: the pre-activation that link l should produce.
    A sample of weight w counts as w samples, in every sum and every mean; without weights, all count once.
    """

    network: Network
    inputs: Tensor
    labels: Tensor
    weights: list[Tensor]
    biases: list[Tensor | None]
    aux: list[Tensor]
    head_weight: Tensor
    head_bias: Tensor | None
    sample_weight: Tensor | None = None


def separate(
    model: nn.Module,
    X: object,
    y: object = None,
    aux: Sequence[Tensor] | None = None,
    *,
    sample_weight: object = None,
) -> State:
    """Take a model apart into a State; without `aux`, by a forward pass, so that every gap is zero.

    X, y and sample_weight as for `fit`. The model is only read; parameters and data are copied.

    Examples
    --------
    >>> import torch, lysep
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    >>> state = lysep.separate(model, torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    >>> [tuple(c.shape) for c in state.aux]
    [(4, 5)]
    """
    source = Source(X, y, sample_weight)
    network = parse(model, source.sample_shape)
    batch = source.batch(None, network)
    with exact(network.device):
        return separate_batch(model, network, batch.clone(), aux)


def separate_batch(model: nn.Module, network: Network, batch: Batch, aux: Sequence[Tensor] | None = None) -> State:
    """`separate` for data that is checked already."""
    modules = linear_modules(model)
    weights = [m.weight.detach().clone() for m in modules]
    biases = [None if m.bias is None else m.bias.detach().clone() for m in modules]
    X, y, sample_weight = batch
    chosen = forward(network, weights, biases, X)[:-1] if aux is None else _check_aux(network, aux, len(X))
    return State(network, X, y, weights[:-1], biases[:-1], chosen, weights[-1], biases[-1], sample_weight)


def restart(state: State, batch: Batch) -> State:
    """The same parameters on other samples, with auxiliary variables by a forward pass."""
    weights, biases = [*state.weights, state.head_weight], [*state.biases, state.head_bias]
    aux = forward(state.network, weights, biases, batch.X)[:-1]
    return replace(state, inputs=batch.X, labels=batch.y, sample_weight=batch.sample_weight, aux=aux)


def forward(
    network: Network, weights: Sequence[Tensor], biases: Sequence[Tensor | None], inputs: Tensor
) -> list[Tensor]:
    """The pre-activations of all layers, the logits last: the nested network φ(X; θ)."""
    return [z for _, _, z in layer_by_layer(network, weights, biases, inputs)]


def layer_by_layer(
    network: Network, weights: Sequence[Tensor], biases: Sequence[Tensor | None], inputs: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The nested network from the first layer to the head: what is active below, its features, the pre-activation."""
    z = inputs
    for layer, W, b in zip(network.layers, weights, biases, strict=True):
        active = layer.activation.value(z)
        features = layer.features(active)
        z = layer.link.map(W, features)
        z = z if b is None else layer.link.add_bias(z, b, out=z)
        yield active, features, z


def write_back(state: State, model: nn.Module) -> None:
    """Put a state's weights and biases into a model of the same architecture, in place."""
    modules = linear_modules(model)
    weights = [*state.weights, state.head_weight]
    biases = [*state.biases, state.head_bias]
    if len(modules) != len(weights):
        raise ModelError(f"the model has {len(modules)} linear layers, but the state has {len(weights)}.")
    pairs: list[tuple[Tensor, Tensor]] = []
    for place, (module, W, b) in enumerate(zip(modules, weights, biases, strict=True)):
        if module.weight.shape != W.shape or (module.bias is None) != (b is None):
            raise ModelError(
                f"linear layer {place} of the model ({module}) does not fit the state's weight of shape "
                f"{tuple(W.shape)} {'without' if b is None else 'with'} bias."
            )
        if module.weight.dtype != W.dtype:
            raise ModelError(
                f"linear layer {place} of the model is in {module.weight.dtype}, but the state in {W.dtype}; rounding "
                "would change what the state says. Convert the model first: model.to(dtype)."
            )
        pairs.append((module.weight, W))
        if module.bias is not None and b is not None:
            pairs.append((module.bias, b))
    with torch.no_grad():
        for parameter, value in pairs:
            parameter.copy_(value)


def checked(state: object) -> State:
    """A State as a person may have put it together (by `dataclasses.replace`, say), made sure of."""
    if not isinstance(state, State):
        raise ValueError(
            f"state is a {type(state).__name__}, not a State. Make one: state = lysep.separate(model, X, y)."
        )
    network = state.network
    weights, biases = [*state.weights, state.head_weight], [*state.biases, state.head_bias]
    if len(weights) != network.depth or len(biases) != network.depth:
        raise ValueError(f"the state has {len(state.weights)} weights and {len(state.biases)} biases for its links.")
    for place, (layer, W, b) in enumerate(zip(network.layers, weights, biases, strict=True)):
        for name, parameter, shape in (("weight", W, layer.link.weight_shape), ("bias", b, layer.link.out_shape[:1])):
            if parameter is None and name == "bias" and not layer.has_bias:
                continue
            if not isinstance(parameter, Tensor) or (tuple(parameter.shape), parameter.dtype) != (shape, network.dtype):
                raise ValueError(f"the {name} of layer {place} must be a tensor of shape {shape} in {network.dtype}.")
    if state.sample_weight is not None:
        check_weights(state.sample_weight, len(state.inputs))
    return replace(state, aux=_check_aux(network, state.aux, len(state.inputs)))


def _check_aux(network: Network, aux: Sequence[Tensor], samples: int) -> list[Tensor]:
    links = [layer.link for layer in network.layers[:-1]]
    if not isinstance(aux, list | tuple):
        raise ValueError(f"aux is a {type(aux).__name__}; it must be a list of tensors, one a link.")
    if len(aux) != len(links):
        raise ValueError(f"aux has {len(aux)} entries, but the model has {len(links)} links, each needs one.")
    checked = []
    for place, (c, link) in enumerate(zip(aux, links, strict=True)):
        c = as_tensor(c, f"aux[{place}]").to(network.device, network.dtype)
        if tuple(c.shape) != (samples, *link.out_shape):
            raise ValueError(
                f"aux[{place}] has shape {tuple(c.shape)}, but link {place} produces {(samples, *link.out_shape)}."
            )
        if not bool(torch.isfinite(c).all()):
            raise ValueError(f"aux[{place}] holds NaN or infinite values.")
        checked.append(c.clone())
    return checked
