"""A scikit-learn classifier that trains by layer separation."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from lysep import labels, state, training
from lysep.building import ACTIVATIONS, by_factory, dense, is_sizes
from lysep.callbacks import Callback, EarlyStopping, Progress
from lysep.data import as_tensor, check_weights
from lysep.history import History
from lysep.labels import Floats, Samples
from lysep.methods import Method, resolve
from lysep.objective import SeparatedLoss, separated_loss
from lysep.parameters import COUNT, FRACTION, NOT_NEGATIVE, TRUTH, Rule, check, is_integer, one_of, optional
from lysep.preprocessing import TableEncoder

_PREDICTED_AT_ONCE = 2**22  # numbers, so that a prediction needs little memory beside the data
_PARTIAL_COLUMNS = ("sweep", "objective", "separated_loss", "cross_entropy", "accuracy", "bound")


class LySepClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """A neural network classifier trained by layer separation.

    Parameters mean what they mean for `sklearn.neural_network.MLPClassifier` where they have the same name. Features
    are not scaled: put a StandardScaler in front, or say `preprocessing="table"`.

    Parameters
    ----------
    hidden_layer_sizes
        The widths of the hidden layers, first to last. (10, 10) is of depth 3: two hidden layers and the head.
    activation
        "tanh", "relu", "logistic", "identity", "leaky_relu", "elu", "silu", "gelu" or "softplus".
    method
        The method of training: a name, or an instance with options such as `lysep.Paper(step="lipschitz")`.
    max_iter
        How many sweeps at most.
    batch_size
        Train on a random subset of this size, replaced every `refresh_every` sweeps. None, or a size that the data do
        not reach: all of them at once.
    refresh_every
        See `batch_size`. None: as suits the method, 1 for "fast" and 200 for "paper".
    tol, n_iter_no_change
        Training ends when the cross-entropy has not improved by more than `tol` for `n_iter_no_change` sweeps, or
        cannot any more. With `batch_size`, early stopping only does that, and `n_iter_no_change` counts batches.
    early_stopping
        Look at the cross-entropy on `validation_fraction` of the samples, held out (stratified), instead of at that on
        those trained on, and keep the model of the best sweep.
    validation_fraction
        See `early_stopping`.
    class_weight
        None, "balanced", or a dictionary from class to weight; multiplies `sample_weight`.
    network
        None, or a function that returns the network to train as an `nn.Sequential`, for images and for anything that
        `hidden_layer_sizes` cannot say. It is called with `n_classes` and `sample_shape` (the shape of X without its
        first axis) if it has parameters of these names. X may then have any number of axes. The model is trained in its
        own dtype; networks made from `hidden_layer_sizes` are in float64, and start as PyTorch's layers do.
    preprocessing
        None: X holds numbers. "table": X is a data frame; numbers are standardized, missing ones imputed, text becomes
        indicators (`lysep.preprocessing.TableEncoder`).
    warm_start
        Let `fit` start from where the last one ended.
    verbose
        Show a progress bar.
    random_state
        Seed of the initial network, of the samples held out and of the batches.

    Attributes
    ----------
    classes_
        The labels, sorted.
    model_
        The trained PyTorch module; `to_torch()` copies it.
    n_features_in_, feature_names_in_
        As in scikit-learn; names only if X was a data frame.
    history_, status_, remarks_
        What the last fit recorded, sweep by sweep, why it ended, and what else the method had to say.
    record_
        Of a loaded classifier: when it was trained, and with which versions.
    separated_loss_
        The separated objective at the end of the last fit, term by term: gaps, their weights, the bound.
    target_name_
        What y was called, if it was a pandas Series; else None.
    loss_curve_
        The training cross-entropy after every sweep so far, over all warm starts and partial fits.
    n_iter_, kept_iter_
        The number of sweeps so far, and after how many of them the model was what it is: fewer with early stopping.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> pipeline = make_pipeline(StandardScaler(), LySepClassifier(hidden_layer_sizes=(10, 10), random_state=0))
    >>> pipeline.fit(X, y).score(X, y) > 0.95
    True
    """

    classes_: NDArray[Any]
    model_: nn.Module
    encoder_: TableEncoder
    sample_shape_: tuple[int, ...]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    history_: History
    status_: training.Status
    remarks_: list[str]
    separated_loss_: SeparatedLoss
    target_name_: str | None
    loss_curve_: list[float]
    n_iter_: int
    kept_iter_: int

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (30,),
        activation: str = "tanh",
        *,
        method: str | Method[Any] = "fast",
        max_iter: int = 200,
        batch_size: int | None = None,
        refresh_every: int | None = None,
        tol: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: str | Mapping[Any, float] | None = None,
        network: Callable[..., nn.Module] | None = None,
        preprocessing: str | None = None,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.method = method
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.refresh_every = refresh_every
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.network = network
        self.preprocessing = preprocessing
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        callbacks: Sequence[Callback] = (),
        time_limit: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Self:
        """Train on samples X with labels y of any type; a sample of weight 2 counts as two samples.

        `callbacks`, `time_limit` and `checkpoint` are those of `lysep.fit`; a run that shall be continued from a
        checkpoint needs a number as random_state.
        """
        check_parameters(vars(self))
        if checkpoint is not None and not is_integer(self.random_state):
            raise ValueError(
                f"random_state={self.random_state!r} with a checkpoint must be an integer: otherwise every run is "
                "another one, and none can be continued."
            )
        going_on = self.warm_start and hasattr(self, "model_")
        samples, classes = self._read(X, y, sample_weight, self.classes_ if going_on else None, reset=not going_on)
        random = check_random_state(self.random_state)
        network_seed, split_seed, batch_seed = (int(seed) for seed in random.randint(2**31 - 1, size=3))
        held_out = None
        if self.early_stopping:
            samples, held_out = self._hold_out(samples, split_seed)
        encoder = self._fitted_encoder(samples, going_on)
        if encoder is not None:
            samples = replace(samples, X=encoder.transform(samples.X))
            held_out = held_out and replace(held_out, X=encoder.transform(held_out.X))
        model = copy.deepcopy(self.model_) if going_on else self._new_model(samples.X, len(classes), network_seed)
        end = _End()
        batch_size = self._batch_size(len(samples.y))
        watch = self._watch(batch_size, held_out is not None)
        result = training.fit(
            model,
            samples.X,
            samples.y,
            sample_weight=samples.weights,
            method=self.method,
            sweeps=self.max_iter,
            batch_size=batch_size,
            refresh_every=self.refresh_every,
            validation=None if held_out is None else (held_out.X, held_out.y, held_out.weights),
            callbacks=[end, *callbacks, *watch],
            progress=bool(self.verbose),
            time_limit=time_limit,
            seed=batch_seed,
            checkpoint=checkpoint,
        )
        _complain(result)
        self._keep(model, classes, encoder, tuple(samples.X.shape[1:]))
        self._record(result.history, result.status, separated_loss(end.state), going_on)
        self.remarks_ = [*result.remarks, *(each.reason for each in watch if each.reason)]
        self.target_name_ = str(y.name) if getattr(y, "name", None) is not None else None
        self.kept_iter_ = self.n_iter_ - len(result.history) + result.kept_sweep
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One sweep on these samples. The first call needs `classes`, all labels that will ever come."""
        check_parameters(vars(self))
        self._refuse_for_partial_fit()
        going_on = hasattr(self, "model_")
        known = self._known_classes(classes) if going_on else labels.declared(classes)
        samples, known = self._read(X, y, sample_weight, known, reset=not going_on)
        if going_on:
            model = copy.deepcopy(self.model_)
        else:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            model = self._new_model(samples.X, len(known), seed)
        start = state.separate(model, samples.X, samples.y, sample_weight=samples.weights)
        end = training.sweep(start, self.method)
        loss = separated_loss(end)
        if not math.isfinite(loss.objective):
            raise ValueError(_TOO_LARGE)
        state.write_back(end, model)
        row = History(_PARTIAL_COLUMNS)
        row.append(
            {
                "sweep": 1,
                "objective": loss.objective,
                "separated_loss": loss.value,
                "cross_entropy": loss.cross_entropy,
                "accuracy": loss.accuracy,
                "bound": loss.bound,
            }
        )
        self._keep(model, known, None, tuple(samples.X.shape[1:]))
        self.target_name_, self.remarks_ = None, []
        self._record(row, training.Status.COMPLETED, loss, going_on)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every sample."""
        places = self._logits(X).argmax(1)
        return np.asarray(self.classes_[places])

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities: one row a sample, one column a class, in the order of classes_."""
        logits = self._logits(X)
        likelihoods = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(likelihoods / likelihoods.sum(1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithms of the probabilities."""
        with np.errstate(divide="ignore"):  # of a probability too small for a number
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> Floats:
        """The logits; with two classes, by how much that of classes_[1] exceeds the other."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def to_torch(self) -> nn.Module:
        """A copy of the trained network: an ordinary PyTorch module from (preprocessed) features to logits."""
        check_is_fitted(self)
        return copy.deepcopy(self.model_)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier into a directory; `lysep.load(path)` brings it back."""
        from lysep.saving import save

        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.preprocessing is not None:
            tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags

    # -- reading samples

    def _read(
        self, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any] | None, *, reset: bool
    ) -> tuple[Samples, NDArray[Any]]:
        """Checked samples without those of weight zero, and the classes: those given, or those found."""
        if y is None:
            raise ValueError("LySepClassifier requires y to be passed, but the target y is None.")
        X = self._features(X, reset=reset)
        y = labels.checked(y)
        if len(X) != len(y):
            raise ValueError(f"X and y have inconsistent numbers of samples: {len(X)} and {len(y)}.")
        weights = None
        if sample_weight is not None:
            checked = as_tensor(np.asarray(sample_weight), "sample_weight").double()
            check_weights(checked, len(y))
            weights = checked.numpy()
            kept = weights > 0.0
            X, y, weights = X[kept], y[kept], weights[kept]
        found, codes = np.unique(y, return_inverse=True)
        if classes is not None:
            codes = labels.places(found, classes)[codes]
        elif len(found) < 2:
            raise ValueError(f"y holds one class only ({found[0]}); a classifier needs at least two.")
        else:
            classes = found
        if self.class_weight is not None:
            ones = np.ones(len(y)) if weights is None else weights
            weights = ones * labels.class_weights(self.class_weight, classes, codes, ones)[codes]
        return Samples(X, codes, weights), classes

    def _features(self, X: Any, *, reset: bool) -> Any:
        if self.preprocessing is not None:
            if not (hasattr(X, "iloc") and hasattr(X, "columns")):
                raise ValueError(f"preprocessing='table' needs a pandas DataFrame, but X is a {type(X).__name__}.")
            if reset:
                validate_data(self, X, skip_check_array=True, reset=True)
            return X
        X = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32], allow_nd=self.network is not None)
        if not reset and X.shape[1:] != self.sample_shape_:
            raise ValueError(f"X holds samples of shape {X.shape[1:]}, but the model takes {self.sample_shape_}.")
        return X

    def _hold_out(self, samples: Samples, seed: int) -> tuple[Samples, Samples]:
        try:
            rows = train_test_split(
                np.arange(len(samples.y)), test_size=self.validation_fraction, random_state=seed, stratify=samples.y
            )
        except ValueError as error:
            raise ValueError(
                f"early_stopping=True cannot hold out validation_fraction={self.validation_fraction} of "
                f"{len(samples.y)} samples with every class on both sides: {error}"
            ) from error
        return samples.rows(rows[0]), samples.rows(rows[1])

    def _fitted_encoder(self, samples: Samples, going_on: bool) -> TableEncoder | None:
        if self.preprocessing is None:
            return None
        return self.encoder_ if going_on else TableEncoder().fit(samples.X, samples.weights)

    def _logits(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = self._features(X, reset=False)
        if self.preprocessing is not None:
            X = self.encoder_.transform(X)
        kind = next(self.model_.parameters())
        step = max(1, _PREDICTED_AT_ONCE // max(1, math.prod(X.shape[1:])))
        with torch.no_grad():
            parts = [
                self.model_(as_tensor(X[start : start + step], "X").to(kind.device, kind.dtype)).double().cpu()
                for start in range(0, len(X), step)
            ]
        return torch.cat(parts).numpy()

    # -- making the network and keeping what came of it

    def _new_model(self, X: Any, n_classes: int, seed: int) -> nn.Module:
        if self.network is None:
            return dense(self.hidden_layer_sizes, self.activation, X.shape[1], n_classes, seed)
        return by_factory(self.network, tuple(X.shape[1:]), n_classes, seed)

    def _batch_size(self, samples: int) -> int | None:
        return None if self.batch_size is None or self.batch_size >= samples else self.batch_size

    def _watch(self, batch_size: int | None, held_out: bool) -> list[_NoBetter]:
        """What ends a run that gets no better. The loss on a batch is none to go by: it is soon learnt by heart."""
        every = resolve(self.method).refresh_every if self.refresh_every is None else self.refresh_every
        patience = self.n_iter_no_change * (1 if batch_size is None else every)
        if held_out:
            return [_NoBetter(patience, min_delta=self.tol)]
        if batch_size is None:
            return [_NoBetter(patience, min_delta=self.tol, monitor="cross_entropy", restore_best=False)]
        return []

    def _keep(
        self, model: nn.Module, classes: NDArray[Any], encoder: TableEncoder | None, sample_shape: tuple[int, ...]
    ) -> None:
        self.model_, self.classes_, self.sample_shape_ = model, classes, sample_shape
        if encoder is not None:
            self.encoder_ = encoder
        elif hasattr(self, "encoder_"):
            del self.encoder_  # of a fit with other parameters

    def _record(self, history: History, status: training.Status, loss: SeparatedLoss, going_on: bool) -> None:
        self.history_, self.status_, self.separated_loss_ = history, status, loss
        self.loss_curve_ = (self.loss_curve_ if going_on else []) + history["cross_entropy"]
        self.n_iter_ = self.kept_iter_ = (self.n_iter_ if going_on else 0) + len(history)

    # -- partial_fit

    def _refuse_for_partial_fit(self) -> None:
        if self.early_stopping:
            raise ValueError("partial_fit does not support early_stopping=True.")
        if self.preprocessing is not None:
            raise ValueError("partial_fit does not support preprocessing: it would have to see all the data at once.")
        if isinstance(self.class_weight, str):
            raise ValueError(
                "partial_fit does not support class_weight='balanced': it would have to see all the data at once. "
                "Pass a dictionary from class to weight."
            )

    def _known_classes(self, classes: Any) -> NDArray[Any]:
        if classes is not None and not np.array_equal(labels.declared(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not the same as on the last call: {self.classes_.tolist()}.")
        return self.classes_


_TOO_LARGE = "the objective is not finite from the start. Scale the features, for instance with a StandardScaler."


class _NoBetter(EarlyStopping):
    """Ends at once where so little is left of the loss that no improvement can count any more; `reason` says why."""

    reason: str | None = None

    def __call__(self, progress: Progress) -> bool:
        waited, little = super().__call__(progress), progress.row[self.monitor] <= self.min_delta
        if waited or little:
            name = self.monitor.replace("_", " ")
            if little:
                self.reason = f"the {name} is not above {self.min_delta:g}: no improvement would count any more"
            else:
                self.reason = f"the {name} did not improve by more than {self.min_delta:g} in {self.patience} sweeps"
        return waited or little


class _End:
    """A callback that keeps where a run ended, before another one goes back to its best sweep."""

    state: state.State

    def __call__(self, progress: Progress) -> None:
        """Nothing is to be done before the end."""

    def finish(self, progress: Progress) -> None:
        self.state = progress.state


def _complain(result: training.FitResult) -> None:
    """What scikit-learn's users expect to be told in other ways than by a status."""
    if result.status is training.Status.NON_FINITE:
        if not len(result.history):
            raise ValueError(_TOO_LARGE)
        warnings.warn(f"training {result.status.message}.", ConvergenceWarning, stacklevel=3)
    if result.status is training.Status.INTERRUPTED:
        warnings.warn(f"training {result.status.message}.", stacklevel=3)


_RULES = {
    "hidden_layer_sizes": Rule(is_sizes, "a positive integer, or a sequence of them with one entry at least"),
    "activation": one_of(*ACTIVATIONS),
    "method": Rule(lambda value: isinstance(value, str | Method), "a name, or an instance such as lysep.Paper()"),
    "max_iter": COUNT,
    "batch_size": optional(COUNT),
    "refresh_every": optional(COUNT),
    "tol": NOT_NEGATIVE,
    "early_stopping": TRUTH,
    "validation_fraction": FRACTION,
    "n_iter_no_change": COUNT,
    "class_weight": optional(Rule(labels.is_class_weight, "'balanced', or a dictionary from class to weight")),
    "network": optional(
        Rule(
            lambda value: callable(value) and not isinstance(value, nn.Module),
            "a function that returns an nn.Sequential",
        )
    ),
    "preprocessing": optional(one_of("table")),
    "warm_start": TRUTH,
}


def check_parameters(parameters: Mapping[str, Any]) -> None:
    check(parameters, _RULES)
