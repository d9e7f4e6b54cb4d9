"""A start measured on the data: one forward pass, every layer's weights scaled to what it sees.

Behind many contracting layers features hardly vary from sample to sample, behind large weights they saturate: in both
no gain reaches the layers below. A measured layer's units have pre-activations of mean 0 and standard deviation 0.35,
and then a bias uniform in ±0.3, so that no symmetry of the activation remains.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lysep.network import Layer
from lysep.objective import Point
from lysep.sums import weighted_mean

_SPREAD, _BIAS = 0.35, 0.3
_COLLAPSED = 0.1  # standard deviation of a layer's median unit
_SATURATED = 0.05  # mean slope of the activation, of its largest
_LEARNED = 0.9  # of the cross-entropy of guessing by class frequency: below it, a model is not touched


def measured_start(point: Point, always: bool) -> Point:
    """All hidden layers measured, or, in a model that has learned nothing, those that are of no use as they are."""
    hidden = range(len(point.aux))
    if not math.isfinite(point.total):
        return point
    guessing = _guessing(point)  # zero for samples of one class, which say nothing of what a model has learned
    if not always and (guessing == 0.0 or point.total / point.samples < _LEARNED * guessing):
        return point
    chosen = [l for l in hidden if always or _is_useless(point, l)]
    if not chosen:
        return point
    generator = torch.Generator(device="cpu").manual_seed(0)
    weights, biases, z = list(point.weights), list(point.biases), point.inputs
    for l in hidden:
        layer = point.network.layers[l]
        features = layer.features(layer.activation.value(z))
        if l in chosen:
            weights[l], biases[l] = _measured(layer, weights[l], biases[l], features, point.sample_weight, generator)
        z = layer.link.map(weights[l], features)
        bias = biases[l]
        z = z if bias is None else layer.link.add_bias(z, bias)
    started = Point(point.network, weights, biases, point.batch)
    return started if math.isfinite(started.total) else point


def _guessing(point: Point) -> float:
    """The cross-entropy of a model that knows how frequent the classes are, and nothing else."""
    classes = torch.nn.functional.one_hot(point.labels, point.network.classes)
    frequencies = weighted_mean(classes.double(), point.sample_weight)
    return float(-torch.xlogy(frequencies, frequencies).sum())


def _is_useless(point: Point, l: int) -> bool:
    c = point.aux[l]
    _, spread = _moments(c, point.sample_weight)
    if float(spread.median()) < _COLLAPSED:
        return True
    activation = point.network.layers[l + 1].activation
    slopes = activation.derivative(c, point.active[l + 1]).abs()
    return float(slopes.double().mean()) < _SATURATED * activation.lipschitz


def _measured(
    layer: Layer,
    weight: Tensor,
    bias: Tensor | None,
    features: Tensor,
    sample_weight: Tensor | None,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor | None]:
    mean, spread = _moments(layer.link.map(weight, features), sample_weight)
    scale = torch.where(spread > 0.0, _SPREAD / spread, 1.0)
    scaled = (weight.double() * scale.reshape(-1, *(1 for _ in weight.shape[1:]))).to(weight.dtype)
    if bias is None:
        return scaled, None
    drawn = torch.rand(len(bias), generator=generator, dtype=torch.float64, device="cpu").to(bias.device)
    return scaled, (_BIAS * (2.0 * drawn - 1.0) - mean * scale).to(bias.dtype)


def _moments(z: Tensor, sample_weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every unit (of every channel), in float64."""
    by_place = z.double().flatten(2) if z.dim() > 2 else z.double().unsqueeze(2)
    mean = weighted_mean(by_place.mean(2), sample_weight)
    variance = weighted_mean((by_place - mean[:, None]).square().mean(2), sample_weight)
    return mean, variance.sqrt()
