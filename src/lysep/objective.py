"""The separated objective S (T for a CNN) and everything it is made of: gaps, weights, ridges, the bound.

`Iterate` is a State with its terms evaluated. It is the one place where they are computed: what a sweep compares when
it accepts an update and what `separated_loss` reports are the same numbers, bit for bit.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lysep import head
from lysep.arithmetic import exact
from lysep.data import Batch
from lysep.network import Network
from lysep.state import State, checked, forward, layer_by_layer, separate
from lysep.sums import squared_norm, total, weighted_mean


class Evaluated(ABC):
    """Parameters evaluated on samples: what the training loop reads of an iterate, whichever method runs.

    `aux[l]` is the auxiliary variable c_l; weights and biases have the head's last.
    """

    network: Network
    inputs: Tensor
    labels: Tensor
    sample_weight: Tensor | None
    weights: list[Tensor]
    biases: list[Tensor | None]
    aux: list[Tensor]

    @property
    def samples(self) -> float:
        """N; with weights, their sum."""
        return float(len(self.labels)) if self.sample_weight is None else float(self.sample_weight.sum())

    @property
    def state(self) -> State:
        return State(
            self.network,
            self.inputs,
            self.labels,
            self.weights[:-1],
            self.biases[:-1],
            list(self.aux),
            self.weights[-1],
            self.biases[-1],
            self.sample_weight,
        )

    @property
    @abstractmethod
    def objective(self) -> float:
        """S, eq. (3.4)."""

    @abstractmethod
    def scores(self) -> tuple[float, float]:
        """Cross-entropy and accuracy of the nested network with these parameters."""

    @property
    def bound(self) -> float:
        """C_B·sqrt(L−1)·𝓛_S of Theorems 3.1 and 4.1, never below the cross-entropy of the nested network."""
        B, depth = self.network.lipschitz, self.network.depth
        try:
            constant = max(math.sqrt(2.0), 2.0 * B, 2.0 * B ** (depth - 1))
        except OverflowError:  # steep activations, a hundred of them: a bound, but not one that says anything
            return math.inf
        return constant * math.sqrt(depth - 1) * self.separated_loss

    @property
    def separated_loss(self) -> float:
        """𝓛_S = sqrt(S / N)."""
        return math.sqrt(self.objective / self.samples)


class Point(Evaluated):
    """Parameters whose auxiliary variables are those of a forward pass: all gaps are zero, and S = Σ r_n².

    That one forward pass is all that is evaluated, and everything is read off it.
    """

    def __init__(
        self, network: Network, weights: Sequence[Tensor], biases: Sequence[Tensor | None], batch: Batch
    ) -> None:
        self.network, self.weights, self.biases = network, list(weights), list(biases)
        self.inputs, self.labels, self.sample_weight = batch
        self.active: list[Tensor] = []
        self.features: list[Tensor] = []
        outputs = []
        for active, features, z in layer_by_layer(network, weights, biases, self.inputs):
            self.active.append(active)
            self.features.append(features)
            outputs.append(z)
        self.aux = outputs[:-1]
        self.log_probs = head.log_probabilities(outputs[-1])
        self.residuals = head.residuals(self.log_probs, self.labels)
        self.total = total(self.residuals, self.sample_weight)
        """Σ r_n, N times the cross-entropy."""

    @property
    def batch(self) -> Batch:
        return Batch(self.inputs, self.labels, self.sample_weight)

    @property
    def objective(self) -> float:
        return squared_norm(self.residuals, self.sample_weight)

    def scores(self) -> tuple[float, float]:
        return self.total / self.samples, accuracy(self.log_probs, self.labels, self.sample_weight)


class Iterate(Evaluated):
    """A State and its evaluated terms. Never changed: `with_...` returns a new one that shares what stays the same.

    Index legend: layer l = 0 … L−1 counts from the first, the head is L−1 (the paper counts 1 … L).
    """

    def __init__(self, state: State) -> None:
        self.network: Network = state.network
        self.inputs, self.labels, self.sample_weight = state.inputs, state.labels, state.sample_weight
        self.weights = [*state.weights, state.head_weight]
        self.biases = [*state.biases, state.head_bias]
        self.aux = [_columnwise(c) for c in state.aux]
        self.norms = [layer.link.squared_norm(W) for layer, W in zip(self.network.layers, self.weights, strict=True)]
        depth = self.network.depth
        self.active: list[Tensor] = [torch.empty(0)] * depth
        self.features: list[Tensor] = [torch.empty(0)] * depth
        self.mapped: list[Tensor] = [torch.empty(0)] * depth
        self.gaps: list[Tensor] = [torch.empty(0)] * (depth - 1)
        self.squares = [0.0] * depth
        for l, below in enumerate([self.inputs, *self.aux]):
            self._set_features(l, below)
        for l in range(depth):
            self._set_term(l)

    # -- changing one block ------------------------------------------------------------------------------------------

    def with_aux(self, l: int, c: Tensor) -> Iterate:
        new = self._fork()
        new.aux[l] = c
        new._set_features(l + 1, c)
        new._set_term(l)
        new._set_term(l + 1)
        return new

    def with_parameters(self, l: int, weight: Tensor, bias: Tensor | None) -> Iterate:
        new = self._fork()
        new.biases[l] = bias
        if weight is not self.weights[l]:
            link = self.network.layers[l].link
            new.weights[l] = weight
            new.norms[l] = link.squared_norm(weight)
            new.mapped[l] = link.map(weight, self.features[l])
        new._set_term(l)
        return new

    # -- terms -------------------------------------------------------------------------------------------------------

    @property
    def objective(self) -> float:
        """S = ‖R‖² + Σ ω_l ‖gap_l‖²."""
        weighted = (_times(w, square) for w, square in zip(_products_above(self.norms), self.squares, strict=True))
        return sum(weighted)

    @property
    def gap_weights(self) -> list[float]:
        """ω_l, eq. (3.5): the product of the squared norms above link l."""
        return [_times(w, 1.0) for w in _products_above(self.norms)[:-1]]

    @property
    def ridges(self) -> list[float]:
        """λ_l: λ_1 = 0 and λ_{l+1} = ‖W_l‖² λ_l + ‖gap_l‖², which unrolls to the sums printed below eq. (3.9).

        The paper stops its indices at L−1 and calls the head's λ; the recursion is the same.
        """
        ridges = [0.0]
        for norm, square in zip(self.norms[:-1], self.squares[:-1], strict=True):
            ridges.append(norm * ridges[-1] + square)
        return ridges

    @property
    def rounding_floors(self) -> list[float]:
        """For every layer, the value below which a change of its term means nothing.

        Either the term times its weight is lost in the rounding of S, or the gap is nothing but the rounding of its
        own evaluation, as it is for the lowest layers of a deep network after a few sweeps.
        """
        in_objective = torch.finfo(torch.float64).eps * self.objective
        in_gap = torch.finfo(self.network.dtype).eps ** 2
        floors = []
        for (mantissa, exponent), c in zip(_products_above(self.norms), [*self.aux, None], strict=True):
            floor = _times((in_objective / mantissa, -exponent), 1.0) if mantissa > 0.0 else math.inf
            floors.append(floor if c is None else max(floor, in_gap * squared_norm(c, self.sample_weight)))
        return floors

    def scores(self) -> tuple[float, float]:
        """Cross-entropy and accuracy of the nested network with these parameters."""
        return scores(self.network, self.weights, self.biases, self.inputs, self.labels, self.sample_weight)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def _fork(self) -> Iterate:
        new = copy.copy(self)
        for name in ("weights", "biases", "aux", "norms", "active", "features", "mapped", "gaps", "squares"):
            setattr(new, name, list(getattr(self, name)))
        return new

    def _set_features(self, l: int, below: Tensor) -> None:
        layer = self.network.layers[l]
        self.active[l] = layer.activation.value(below)
        self.features[l] = layer.features(self.active[l])
        self.mapped[l] = layer.link.map(self.weights[l], self.features[l])

    def _set_term(self, l: int) -> None:
        """‖W_l V_l + b_l 1ᵀ − c_l‖², or for the head ‖R‖²."""
        bias, mapped = self.biases[l], self.mapped[l]
        produced = mapped if bias is None else self.network.layers[l].link.add_bias(mapped, bias)
        if l < self.network.depth - 1:
            self.gaps[l] = produced - self.aux[l]
            self.squares[l] = squared_norm(self.gaps[l], self.sample_weight)
        else:
            self.log_probs = head.log_probabilities(produced)
            self.residuals = head.residuals(self.log_probs, self.labels)
            self.squares[l] = squared_norm(self.residuals, self.sample_weight)


@dataclass(frozen=True)
class SeparatedLoss:
    """The separated objective term by term. Lists have one entry a link; `ridges` has one more, the head's."""

    objective: float
    value: float
    head: float
    gaps: list[float]
    weights: list[float]
    ridges: list[float]
    bound: float
    cross_entropy: float
    accuracy: float


def separated_loss(
    model: nn.Module | State,
    X: object = None,
    y: object = None,
    aux: Sequence[Tensor] | None = None,
    *,
    sample_weight: object = None,
) -> SeparatedLoss:
    """Evaluate the separated objective of a State, or of a model on X and y (without `aux`: by a forward pass)."""
    if isinstance(model, State):
        if any(argument is not None for argument in (X, y, aux, sample_weight)):
            raise ValueError("separated_loss(state) takes nothing else: a State brings its data and its aux.")
        state = checked(model)
    else:
        state = separate(model, X, y, aux, sample_weight=sample_weight)
    with exact(state.network.device):
        iterate = Iterate(state)
        cross_entropy, accuracy = iterate.scores()
    return SeparatedLoss(
        objective=iterate.objective,
        value=iterate.separated_loss,
        head=iterate.squares[-1],
        gaps=iterate.squares[:-1],
        weights=iterate.gap_weights,
        ridges=iterate.ridges,
        bound=iterate.bound,
        cross_entropy=cross_entropy,
        accuracy=accuracy,
    )


def scores(
    network: Network,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor | None],
    inputs: Tensor,
    labels: Tensor,
    sample_weight: Tensor | None = None,
) -> tuple[float, float]:
    """Cross-entropy, eq. (2.3), and accuracy of the nested network."""
    log_probs = head.log_probabilities(forward(network, weights, biases, inputs)[-1])
    cross_entropy = weighted_mean(head.residuals(log_probs, labels), sample_weight)
    return float(cross_entropy), accuracy(log_probs, labels, sample_weight)


def accuracy(log_probs: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> float:
    return float(weighted_mean((log_probs.max(1).indices == labels).double(), sample_weight))


def _columnwise(c: Tensor) -> Tensor:
    """The layout that dense links produce (see DenseLink), so that equal values are summed in equal order."""
    return c.T.contiguous().T if c.dim() == 2 else c.contiguous()


def _products_above(norms: Sequence[float]) -> list[tuple[float, int]]:
    """Π_{j>l} norms_j for every l, as mantissa and exponent: a hundred factors neither overflow nor underflow."""
    mantissa, exponent = 1.0, 0
    products = [(mantissa, exponent)]
    for norm in reversed(norms[1:]):
        mantissa, shift = math.frexp(mantissa * norm)
        exponent += shift
        products.append((mantissa, exponent))
    return products[::-1]


def _times(product: tuple[float, int], x: float) -> float:
    """product · x, infinite only where the value itself exceeds the range of float64."""
    mantissa, shift = math.frexp(product[0] * x)
    try:
        return math.ldexp(mantissa, product[1] + shift)
    except OverflowError:
        return math.inf
