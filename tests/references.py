"""Slow dense versions of everything, written from the paper and from nothing in the package.

Convolutions and poolings are explicit matrices, filled entry by entry. Samples are columns, as in the paper; a layer is
(matrix of K_l P_{l-1} as a function of its weight, bias, activation module in front). All in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def conv_matrix(weight, in_shape, stride, padding, dilation):
    """The matrix of a convolution on flattened samples; `padding` is (top, left), zeros are assumed beyond."""
    channels, height, width = in_shape
    out_channels, _, kh, kw = weight.shape
    (top, bottom), (left, right) = padding
    oh = (height + top + bottom - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width + left + right - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    rows = []
    for o in range(out_channels):
        for y in range(oh):
            for x in range(ow):
                row = [torch.zeros((), dtype=weight.dtype)] * (channels * height * width)
                for c in range(channels):
                    for a in range(kh):
                        for b in range(kw):
                            iy = y * stride[0] + a * dilation[0] - top
                            ix = x * stride[1] + b * dilation[1] - left
                            if 0 <= iy < height and 0 <= ix < width:
                                row[(c * height + iy) * width + ix] = weight[o, c, a, b]
                rows.append(torch.stack(row))
    return torch.stack(rows), (out_channels, oh, ow)


def pool_matrix(module, in_shape):
    """The matrix of an average pooling with PyTorch's rules for borders, rounding up and divisors."""
    channels, height, width = in_shape
    (kh, kw), (sh, sw), (ph, pw) = pair(module.kernel_size), pair(module.stride), pair(module.padding)

    def outputs(size, k, s, p):
        count = (size + 2 * p - k) / s
        count = (math.ceil(count) if module.ceil_mode else math.floor(count)) + 1
        if module.ceil_mode and (count - 1) * s >= size + p:  # the last window must start inside
            count -= 1
        return count

    oh, ow = outputs(height, kh, sh, ph), outputs(width, kw, sw, pw)
    P = torch.zeros(channels * oh * ow, channels * height * width, dtype=torch.float64)
    for c in range(channels):
        for y in range(oh):
            for x in range(ow):
                y0, x0 = y * sh - ph, x * sw - pw
                y1, x1 = min(y0 + kh, height + ph), min(x0 + kw, width + pw)
                inside = [
                    (iy, ix) for iy in range(max(y0, 0), min(y1, height)) for ix in range(max(x0, 0), min(x1, width))
                ]
                if module.divisor_override is not None:
                    divisor = module.divisor_override
                elif module.count_include_pad:
                    divisor = (y1 - y0) * (x1 - x0)
                else:
                    divisor = len(inside)
                for iy, ix in inside:
                    P[(c * oh + y) * ow + x, (c * height + iy) * width + ix] = 1.0 / divisor
    return P, (channels, oh, ow)


@dataclass
class DenseLayer:
    """One layer in the paper's terms. `linear` holds the hyperparameters only; the weight is passed in."""

    activation: nn.Module | None
    pooling: torch.Tensor  # P_{l-1}, or the identity
    linear: nn.Module
    in_shape: tuple[int, ...]  # after pooling

    def kernel_matrix(self, weight):
        """K_l for a weight in PyTorch's layout."""
        if isinstance(self.linear, nn.Linear):
            return weight
        m = self.linear
        return conv_matrix(weight, self.in_shape, pair(m.stride), conv_borders(m), pair(m.dilation))[0]

    def bias_column(self, bias, rows):
        """b_l 1ᵀ, one column."""
        return bias.repeat_interleave(rows // len(bias))[:, None]

    def features(self, below):
        return self.pooling @ (below if self.activation is None else self.activation(below))


def conv_borders(m):
    if not isinstance(m.padding, str):
        return tuple((p, p) for p in pair(m.padding))
    if m.padding == "valid":
        return ((0, 0), (0, 0))
    totals = [d * (k - 1) for d, k in zip(pair(m.dilation), pair(m.kernel_size), strict=True)]
    return tuple((t // 2, t - t // 2) for t in totals)


def layers_of(model, in_shape):
    """Group the modules of a (nested) Sequential into DenseLayers."""
    flat = [m for m in model.modules() if not isinstance(m, nn.Sequential | nn.Identity)]
    layers, activation, shape = [], None, tuple(in_shape)
    pooling = torch.eye(math.prod(shape), dtype=torch.float64)
    for m in flat:
        if isinstance(m, nn.AvgPool2d):
            P, shape = pool_matrix(m, shape)
            pooling = P @ pooling
        elif isinstance(m, nn.Flatten):
            shape = (math.prod(shape),)
        elif isinstance(m, nn.Linear | nn.Conv2d):
            layer = DenseLayer(activation, pooling, m, shape)
            layers.append(layer)
            if isinstance(m, nn.Linear):
                shape = (m.out_features,)
            else:
                zero = torch.zeros_like(m.weight.detach())
                shape = conv_matrix(zero, shape, pair(m.stride), conv_borders(m), pair(m.dilation))[1]
            activation, pooling = None, torch.eye(math.prod(shape), dtype=torch.float64)
        else:
            activation = m
    return layers


def columns(x):
    """Samples in rows, of any shape, to the paper's columns."""
    return x.reshape(len(x), -1).T.double()


@dataclass
class Terms:
    objective: torch.Tensor
    head: torch.Tensor
    gaps: list
    omegas: list
    ridges: list
    norms: list
    logits: torch.Tensor


def terms(layers, weights, biases, aux, X, y):
    """S and its terms for parameters in PyTorch's layout (head last) and aux as the paper's columns."""
    matrices = [layer.kernel_matrix(W.double()) for layer, W in zip(layers, weights, strict=True)]
    norms = [((K @ layer.pooling) ** 2).sum() for K, layer in zip(matrices, layers, strict=True)]
    below = [columns(X), *aux]
    produced = []
    for layer, K, b, c in zip(layers, matrices, biases, below, strict=True):
        z = K @ layer.features(c)
        produced.append(z if b is None else z + layer.bias_column(b.double(), len(z)))
    L = len(layers)
    gaps = [((produced[l] - aux[l]) ** 2).sum() for l in range(L - 1)]
    omegas = [math_product(norms[l + 1 :]) for l in range(L - 1)]
    # λ_l exactly as printed: Σ_{i<=l-2} (Π_{j=i+1}^{l-1} ‖W_j‖²) gap_i + gap_{l-1}, one-based
    ridges = []
    for l in range(1, L + 1):
        total = gaps[l - 2] if l >= 2 else torch.zeros((), dtype=torch.float64)
        for i in range(1, l - 1):
            total = total + math_product(norms[i : l - 1]) * gaps[i - 1]
        ridges.append(total)
    z = produced[-1]
    residuals = torch.logsumexp(z, 0) - z[y, torch.arange(len(y))]
    head = (residuals**2).sum()
    objective = head + sum(w * g for w, g in zip(omegas, gaps, strict=True))
    return Terms(objective, head, gaps, omegas, ridges, norms, z)


def math_product(values):
    product = torch.ones((), dtype=torch.float64)
    for value in values:
        product = product * value
    return product


def bound(L, objective, samples, lipschitz):
    C = max(math.sqrt(2), 2 * lipschitz, 2 * lipschitz ** (L - 1))
    return C * math.sqrt(L - 1) * math.sqrt(float(objective) / samples)


def state_arguments(state):
    """A lysep State as arguments of `terms`."""
    weights = [*state.weights, state.head_weight]
    biases = [*state.biases, state.head_bias]
    return weights, biases, [columns(c) for c in state.aux], state.inputs, state.labels


def sweep(layers, weights, biases, aux, X, y, start, shrink):
    """One iteration of Algorithm 1 or 2 from the text: gradients by autograd, S always evaluated as a whole."""
    weights, biases, aux = list(weights), list(biases), list(aux)

    def S(**changed):
        arguments = {"weights": weights, "biases": biases, "aux": aux} | changed
        return terms(layers, **arguments, X=X, y=y)

    def descend(values, blocks, curvature):
        """A gradient step on some blocks with monotone backtracking from start / curvature of S."""
        if curvature == 0.0:
            return
        at = [b.clone().requires_grad_() for b in blocks]
        before = S(**values(at)).objective
        grads = torch.autograd.grad(before, at)
        tau = start / curvature
        for _ in range(60):
            trial = [b - tau * g for b, g in zip(blocks, grads, strict=True)]
            if S(**values(trial)).objective <= before:
                for b, t in zip(blocks, trial, strict=True):
                    b.copy_(t)
                return
            tau *= shrink

    L = len(layers)
    now = S()
    weights[-1], biases[-1] = weights[-1].clone(), None if biases[-1] is None else biases[-1].clone()
    V = layers[-1].features(aux[-1])
    logits = now.logits
    errors = torch.softmax(logits, 0).T - torch.nn.functional.one_hot(y, len(logits))
    r = torch.logsumexp(logits, 0) - logits[y, torch.arange(len(y))]
    squares = (V**2).sum(0) + (0.0 if biases[-1] is None else 1.0)
    largest = float(torch.linalg.eigvalsh(metric(layers[-1], weights[-1]))[-1])
    curvature = 2.0 * (float((((errors**2).sum(1) + r / 2) * squares).sum()) + float(now.ridges[-1]) * largest)

    def head(values):
        return {
            "weights": [*weights[:-1], values[0]],
            "biases": [*biases[:-1], values[1] if len(values) > 1 else None],
        }

    descend(head, [weights[-1]] if biases[-1] is None else [weights[-1], biases[-1]], curvature)
    ridges = now.ridges
    for l in reversed(range(L - 1)):
        aux[l] = aux[l].clone()
        t = S()
        omegas = [*t.omegas, 1.0]

        def auxiliary(values, l=l):
            return {"aux": [*aux[:l], values[0], *aux[l + 1 :]]}

        descend(auxiliary, [aux[l]], 2.0 * float(omegas[l + 1] * t.norms[l + 1]))
        weights[l] = stacked_solution(layers[l], weights[l], biases[l], aux[l], [columns(X), *aux][l], ridges[l])
        if biases[l] is not None:
            K = layers[l].kernel_matrix(weights[l])
            missing = aux[l] - K @ layers[l].features([columns(X), *aux][l])
            biases[l] = missing.reshape(len(biases[l]), -1).mean(1)
    return weights, biases, aux


def linear_in(layer, W, below, ridge):
    """The matrix of kernel entries ↦ [K V, sqrt(ridge) K P], column by column."""
    basis = torch.eye(W.numel(), dtype=torch.float64).reshape(W.numel(), *W.shape)
    images = []
    for kernel in basis:
        K = layer.kernel_matrix(kernel)
        images.append(
            torch.cat([(K @ layer.features(below)).reshape(-1), ridge**0.5 * (K @ layer.pooling).reshape(-1)])
        )
    return torch.stack(images, dim=1)


def metric(layer, W):
    """The matrix of W ↦ ‖K P‖_F² as a quadratic form in the kernel's entries."""
    nothing = torch.zeros(layer.pooling.shape[1], 1, dtype=torch.float64)
    fit = layer.kernel_matrix(torch.zeros_like(W)) @ layer.features(nothing)
    A = linear_in(layer, W, nothing, torch.ones((), dtype=torch.float64))[fit.numel() :]
    return A.T @ A


def stacked_solution(layer, W, bias, c, below, ridge):
    """Eqs. (3.10) and (4.5) as one dense least-squares problem, solved for the change from W by the SVD.

    Where features are dependent, the change of least norm, every entry measured in units of its own column.
    """
    A = linear_in(layer, W, below, ridge)
    B = c if bias is None else c - layer.bias_column(bias, len(c))
    target = torch.cat([B.reshape(-1), torch.zeros(len(A) - B.numel(), dtype=torch.float64)])
    missing = target - A @ W.reshape(-1)
    units = A.norm(dim=0)
    units = torch.where(units > 0.0, units, 1.0)
    change = torch.linalg.lstsq(A / units, missing[:, None], driver="gelsd").solution[:, 0] / units
    return W + change.reshape(W.shape)


# -- local gain --------------------------------------------------------------------------------------------------------


def outputs_of(layers, weights, biases, X):
    """Pre-activations of all layers as columns, in one graph."""
    outputs, z = [], columns(X)
    for layer, W, b in zip(layers, weights, biases, strict=True):
        z = layer.kernel_matrix(W) @ layer.features(z)
        z = z if b is None else z + layer.bias_column(b, len(z))
        outputs.append(z)
    return outputs


def root_losses(logits, y):
    """ρ_n = sqrt(r_n)."""
    return (torch.logsumexp(logits, 0) - logits[y, torch.arange(len(y))]).sqrt()


def local_gains(layers, weights, biases, X, y):
    """ρ and, by autograd, its gradient in what every layer produces."""
    outputs = outputs_of(layers, [W.clone().requires_grad_() for W in weights], biases, X)
    rho = root_losses(outputs[-1], y)
    return rho.detach(), torch.autograd.grad(rho.sum(), outputs)


def regressors(layer, W, bias, below):
    """The v of every place and sample: columns × places × samples."""
    rows = []
    for i in range(W[0].numel()):
        kernel = torch.zeros_like(W)
        kernel[0].view(-1)[i] = 1.0
        image = layer.kernel_matrix(kernel) @ layer.features(below)
        rows.append(image[: len(image) // len(W)])
    return torch.stack(rows if bias is None else [*rows, torch.ones_like(rows[0])])


@dataclass
class LocalProblem:
    """One layer's weighted regression, entry by entry: v (c, p, n), gains (o, p, n), factors (p, n), B, ridge, D."""

    v: torch.Tensor
    delta: torch.Tensor
    factors: torch.Tensor
    B: torch.Tensor
    ridge: torch.Tensor
    solution: torch.Tensor


def local_problem(layer, W, bias, below, delta, rho, ridge, bias_ridge, gain_ridge):
    v = regressors(layer, W, bias, below)
    delta = delta.reshape(len(W), *v.shape[1:])
    M = torch.einsum("apn,bpn->ab", delta, delta)
    values, vectors = torch.linalg.eigh(M)
    B = vectors @ (values.clamp(min=0.0) + gain_ridge * values.clamp(min=0.0).mean()).sqrt().diag() @ vectors.T
    norms = torch.einsum("apn,ab,bpn->pn", delta, torch.linalg.inv(B), delta).sqrt()
    factors = norms * norms.sum(0)
    squares = torch.einsum("cpn,pn->c", v**2, factors)
    if bias is not None:
        means = torch.einsum("cpn,pn->c", v[:-1], factors) / factors.sum()
        variance = (squares[:-1] - means**2 * factors.sum()).mean()
        added = torch.cat([ridge * variance.repeat(len(v) - 1), bias_ridge * ridge * variance[None]])
    else:
        added = ridge * squares.mean().repeat(len(v))
    # min Σ f ‖D v − Δ*‖²_B + ‖D‖²: stacked rows for E = F D with B = Fᵀ F, by least squares
    F = torch.linalg.cholesky(B).T
    target = -rho * torch.linalg.solve(B, delta.flatten(1)).reshape(delta.shape) / factors
    design = torch.cat([(v * factors.sqrt()).flatten(1).T, added.sqrt().diag()])
    wanted = torch.cat([(F @ (target * factors.sqrt()).flatten(1)).T, torch.zeros(len(v), len(W), dtype=v.dtype)])
    E = torch.linalg.lstsq(design, wanted, driver="gelsd").solution
    return LocalProblem(v, delta, factors, B, added, torch.linalg.solve(F, E.T))


def split(step, W, bias):
    """A step's matrix as changes of weight and bias."""
    return step[:, : W[0].numel()].reshape(W.shape), None if bias is None else step[:, -1]


def coupled_step(layers, weights, biases, X, y, directions, charges, groups, damping):
    """The coupling's step: the derivative of ρ along every direction by differentiating in its length."""
    lengths = torch.zeros(len(directions), groups, dtype=torch.float64)

    def rho_at(lengths):
        W, b = list(weights), list(biases)
        for kind, direction in enumerate(directions):
            for l, step in enumerate(direction):
                change, shift = split(lengths[kind, l * groups // len(layers)] * step, weights[l], biases[l])
                W[l] = W[l] + change
                b[l] = b[l] if shift is None else b[l] + shift
        return root_losses(outputs_of(layers, W, b, X)[-1], y)

    C = torch.autograd.functional.jacobian(rho_at, lengths).flatten(1)
    K = torch.zeros(len(directions), groups, len(directions), groups, dtype=torch.float64)
    for l in range(len(layers)):
        g = l * groups // len(layers)
        K[:, g, :, g] += charges[l]
    K = K.flatten(2).flatten(0, 1)
    s = torch.linalg.solve(C.T @ C + damping * K, -C.T @ rho_at(lengths)).reshape(lengths.shape)
    steps = []
    for l in range(len(layers)):
        g = l * groups // len(layers)
        steps.append(sum(s[kind, g] * direction[l] for kind, direction in enumerate(directions)))
    return steps, C


def charge_of(problem, directions):
    """tr(D_iᵀ B D_j A) for the directions of one layer, A with its ridge."""
    A = torch.einsum("cpn,dpn,pn->cd", problem.v, problem.v, problem.factors) + problem.ridge.diag()
    return torch.stack([torch.stack([(D.T @ problem.B @ E @ A).trace() for E in directions]) for D in directions])
