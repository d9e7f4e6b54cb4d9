"""Trained classifiers on disk: a directory of `model.safetensors` (the parameters) and `lysep.json` (all the rest).

Nothing in it is code and nothing is unpickled, so a model from anywhere is safe to open. Whatever is wrong with it is
one ValueError or OSError that says what.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from numpy.typing import NDArray
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import lysep
from lysep import atomic, methods
from lysep.architecture import Architecture
from lysep.estimator import LySepClassifier, check_parameters
from lysep.fields import Fields
from lysep.history import History
from lysep.network import parse
from lysep.objective import SeparatedLoss
from lysep.preprocessing import TableEncoder
from lysep.training import Status

FORMAT, VERSION = "lysep-model", 1
PARAMETERS_FILE, DESCRIPTION_FILE = "model.safetensors", "lysep.json"
_FILES = {PARAMETERS_FILE, DESCRIPTION_FILE}
_MOST_ROWS = 500  # of the history that are kept, evenly spread
_LONGEST_DESCRIPTION = 2**26  # bytes

Path_ = str | PathLike[str]


def save(classifier: LySepClassifier, path: Path_) -> None:
    """Write a fitted classifier into a directory, whole or not at all; a model that is there already is replaced.

    What cannot be written as data is left out: a `network` function (the architecture it made is kept), a method that
    is not one of lysep's, a random state that is not a number, and of a long history all but some five hundred sweeps.

    >>> import tempfile, torch, lysep
    >>> X = torch.rand(100, 2) * 2 - 1
    >>> classifier = lysep.LySepClassifier(max_iter=5).fit(X, X.norm(dim=1) < 0.8)
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     lysep.save(classifier, f"{directory}/model")
    ...     again = lysep.load(f"{directory}/model")
    >>> bool((again.predict(X) == classifier.predict(X)).all())
    True
    """
    if not isinstance(classifier, LySepClassifier):
        raise ValueError(f"only a LySepClassifier can be saved, not a {type(classifier).__name__}.")
    check_is_fitted(classifier)
    target = Path(path).resolve()
    refuse_to_replace(target)
    tensors = {name: value.detach().cpu().contiguous() for name, value in classifier.model_.state_dict().items()}
    parameters = tensors_to_bytes(tensors)
    description = _describe(classifier) | {"sha256": hashlib.sha256(parameters).hexdigest()}
    text = json.dumps(description, indent=1, allow_nan=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic.new_directory(target, refuse_to_replace) as draft:
        (draft / PARAMETERS_FILE).write_bytes(parameters)
        (draft / DESCRIPTION_FILE).write_text(text, encoding="utf-8")


def load(path: Path_) -> LySepClassifier:
    """The classifier saved in a directory. It predicts what it predicted when it was saved."""
    source = Path(path)
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is not a directory with a saved model.")
    description, parameters = _read(source / DESCRIPTION_FILE), (source / PARAMETERS_FILE).read_bytes()
    try:
        return _restored(Fields(description, "the description"), parameters)
    except Exception as error:  # nothing that a file may hold must end in anything but one clear error
        raise ValueError(f"{source} does not hold a model that can be read: {error}") from error


def refuse_to_replace(path: Path) -> None:
    """Only a saved model, or nothing, gives way to a new one."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if path.is_dir() and {file.name for file in path.iterdir()} == _FILES:
        return
    raise FileExistsError(f"{path} exists and is not a lysep model, so it is not replaced. Choose another path.")


# -- writing


def _describe(classifier: LySepClassifier) -> dict[str, Any]:
    encoder = getattr(classifier, "encoder_", None)
    names = getattr(classifier, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "architecture": Architecture.of(classifier.model_).to_dict(),
        "sample_shape": list(classifier.sample_shape_),
        "n_features": int(classifier.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "target": classifier.target_name_,
        "classes": _describe_classes(classifier.classes_),
        "preprocessing": None if encoder is None else encoder.to_dict(),
        "parameters": _describe_parameters(classifier),
        "training": _training_record(classifier),
    }


def _describe_classes(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if not all(isinstance(value, bool | int | float | str) for value in values):
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(f"classes of type {', '.join(kinds)} cannot be saved; use texts, integers or truth values.")
    return {"dtype": "object" if classes.dtype.kind in "OUT" else classes.dtype.name, "values": values}


def _describe_parameters(classifier: LySepClassifier) -> dict[str, Any]:
    parameters = classifier.get_params(deep=False)
    weights, seed = parameters["class_weight"], parameters["random_state"]
    if isinstance(weights, Mapping):
        parameters["class_weight"] = [[_plain(label), float(weight)] for label, weight in weights.items()]
    if not isinstance(parameters["method"], str):
        parameters["method"] = methods.describe(parameters["method"])
    parameters["network"] = parameters["network"] is not None
    parameters["random_state"] = None if isinstance(seed, np.random.RandomState) else seed
    parameters["hidden_layer_sizes"] = np.atleast_1d(parameters["hidden_layer_sizes"]).tolist()
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _training_record(classifier: LySepClassifier) -> dict[str, Any]:
    history = classifier.history_
    places = np.unique(np.linspace(0, len(history) - 1, min(_MOST_ROWS, len(history))).round().astype(int))
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "lysep": lysep.__version__,
            "torch": torch.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "status": classifier.status_.name,
        "remarks": classifier.remarks_,
        "sweeps": classifier.n_iter_,
        "kept_sweep": classifier.kept_iter_,
        "separated_loss": {
            name: [_finite_or_text(v) for v in value] if isinstance(value, list) else _finite_or_text(value)
            for name, value in asdict(classifier.separated_loss_).items()
        },
        "history": {
            name: [_finite_or_text(column[place]) for place in places] for name, column in history.to_dict().items()
        },
    }


def _finite_or_text(value: float) -> float | str:
    return value if math.isfinite(value) else repr(float(value))  # JSON has no infinity: a bound may be


# -- reading


def _read(path: Path) -> Any:
    if path.stat().st_size > _LONGEST_DESCRIPTION:
        raise ValueError(f"{path} is too large to be the description of a model.")
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not the description of a model: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON.")


def _restored(fields: Fields, parameters: bytes) -> LySepClassifier:
    if fields.text("format") != FORMAT:
        raise ValueError(f"its format is {fields.text('format')!r}, not {FORMAT!r}.")
    if fields.integer("version", 1, 2**31) != VERSION:
        raise ValueError(
            f"it is of version {fields.raw('version')}, and lysep {lysep.__version__} reads version {VERSION}. "
            "Use the lysep that wrote it, or a later one."
        )
    if hashlib.sha256(parameters).hexdigest() != fields.text("sha256"):
        raise ValueError(f"{PARAMETERS_FILE} is damaged, or belongs to another model: its checksum is wrong.")
    architecture = Architecture.from_dict(fields.raw("architecture"))
    model = _model(architecture, tensors_from_bytes(parameters))
    shape = fields.integers("sample_shape", 1, 2**31 - 1)
    if math.prod(shape) >= 2**40:
        raise ValueError(f"samples of shape {shape} are too large.")
    classes, encoder = _classes(fields.object("classes")), None
    network = parse(model, shape)
    if network.classes != len(classes):
        raise ValueError(f"the network has {network.classes} outputs, but there are {len(classes)} classes.")
    if fields.raw("preprocessing") is not None:
        encoder = TableEncoder.from_dict(fields.raw("preprocessing"))
        if shape != (len(encoder.features),):
            raise ValueError(f"preprocessing makes {len(encoder.features)} features, but samples are of shape {shape}.")
    classifier = _unfitted(fields.object("parameters"), architecture)
    if (classifier.preprocessing is None) != (encoder is None):
        raise ValueError("the parameters and what is saved disagree on whether there is preprocessing.")
    classifier.model_, classifier.classes_, classifier.sample_shape_ = model, classes, shape
    if encoder is not None:
        classifier.encoder_ = encoder
    classifier.target_name_ = None if fields.raw("target") is None else fields.text("target")
    _restore_features(classifier, fields, shape)
    _restore_record(classifier, fields.object("training"))
    return classifier


def _model(architecture: Architecture, tensors: dict[str, Tensor]) -> nn.Module:
    model = architecture.empty()
    wanted = model.state_dict()
    if wanted.keys() != tensors.keys():
        odd = sorted(wanted.keys() ^ tensors.keys())
        raise ValueError(f"{PARAMETERS_FILE} and the architecture disagree on which parameters there are: {odd[:5]}.")
    for name, tensor in tensors.items():
        if (tensor.shape, tensor.dtype) != (wanted[name].shape, wanted[name].dtype):
            raise ValueError(
                f"parameter {name} is {tensor.dtype} of shape {tuple(tensor.shape)}, but the architecture says "
                f"{wanted[name].dtype} of shape {tuple(wanted[name].shape)}."
            )
    model.load_state_dict(tensors, assign=True)
    return model


_CLASS_TYPES = {"object": (str, "O"), "bool": (bool, "b"), "int": (int, "iu"), "float": (float, "f")}  # JSON's, NumPy's


def _classes(fields: Fields) -> NDArray[Any]:
    name, values = fields.text("dtype"), fields.items("values")
    family = name.rstrip("0123456789").removeprefix("u")
    if family not in _CLASS_TYPES:
        raise ValueError(f"classes of dtype {name!r} are not known.")
    json_type, numpy_kinds = _CLASS_TYPES[family]
    if not all(type(value) is json_type for value in values):
        raise ValueError(f"the classes must be values of dtype {name}.")
    classes = np.array(values, dtype=np.dtype(name))
    if classes.dtype.kind not in numpy_kinds or classes.tolist() != sorted(set(values)) or len(values) < 2:
        raise ValueError("the classes must be at least two different values in ascending order.")
    return classes


def _unfitted(fields: Fields, architecture: Architecture) -> LySepClassifier:
    classifier = LySepClassifier()
    parameters = {name: fields.raw(name) for name in classifier.get_params(deep=False)}
    parameters["hidden_layer_sizes"] = tuple(fields.items("hidden_layer_sizes"))
    parameters["network"] = architecture if fields.truth("network") else None
    if parameters["class_weight"] is not None and not isinstance(parameters["class_weight"], str):
        parameters["class_weight"] = dict(fields.items("class_weight"))
    if parameters["method"] is None:
        parameters["method"] = classifier.method
    elif not isinstance(parameters["method"], str):
        method = fields.object("method")
        parameters["method"] = methods.from_description(method.text("name"), method.object("options").whole())
    if fields.raw("random_state") is not None:
        fields.integer("random_state", 0, 2**32 - 1)
    check_parameters(parameters)
    classifier.set_params(**parameters)
    return classifier


def _restore_features(classifier: LySepClassifier, fields: Fields, shape: tuple[int, ...]) -> None:
    classifier.n_features_in_ = fields.integer("n_features", 1, 2**31 - 1)
    expected = shape[0]
    if classifier.preprocessing is not None:
        expected = len(classifier.encoder_.columns)
    if classifier.n_features_in_ != expected:
        raise ValueError(f"n_features is {classifier.n_features_in_}, but the model takes {expected}.")
    if fields.raw("feature_names") is None:
        return
    names = fields.texts("feature_names")
    if len(names) != expected:
        raise ValueError(f"there are {len(names)} feature names for {expected} features.")
    classifier.feature_names_in_ = np.array(names, dtype=object)


def _restore_record(classifier: LySepClassifier, fields: Fields) -> None:
    status = fields.text("status")
    if status not in Status.__members__:
        raise ValueError(f"the status {status!r} is not known.")
    classifier.status_ = Status[status]
    classifier.remarks_ = fields.texts("remarks")
    classifier.n_iter_ = fields.integer("sweeps", 0, 2**53)
    classifier.kept_iter_ = fields.integer("kept_sweep", 0, classifier.n_iter_)
    columns = {name: [_number(value) for value in values] for name, values in _columns(fields.object("history"))}
    classifier.separated_loss_ = _separated_loss(fields.object("separated_loss"))
    history = History(tuple(columns))
    for row in zip(*columns.values(), strict=True):
        history.append(dict(zip(columns, row, strict=True)))
    classifier.history_ = history
    classifier.loss_curve_ = history["cross_entropy"]
    classifier.record_ = {
        "finished": fields.text("finished"),
        "versions": {name: str(value) for name, value in fields.object("versions").whole().items()},
    }


def _separated_loss(fields: Fields) -> SeparatedLoss:
    def number(name: str) -> float:
        return _number(fields.raw(name))

    def numbers(name: str) -> list[float]:
        return [_number(value) for value in fields.items(name)]

    return SeparatedLoss(
        objective=number("objective"),
        value=number("value"),
        head=number("head"),
        gaps=numbers("gaps"),
        weights=numbers("weights"),
        ridges=numbers("ridges"),
        bound=number("bound"),
        cross_entropy=number("cross_entropy"),
        accuracy=number("accuracy"),
    )


def _columns(fields: Fields) -> list[tuple[str, list[Any]]]:
    return [(name, fields.items(name)) for name in fields.whole()]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in ("inf", "-inf", "nan")):
        raise ValueError(f"the history holds {value!r}, not a number.")
    return value if isinstance(value, int) else float(value)
