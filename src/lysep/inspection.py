"""What a trained classifier is made of, and how it came about, in words for a terminal."""

from __future__ import annotations

from typing import Any

from torch import nn

from lysep import methods
from lysep.architecture import leaves
from lysep.estimator import LySepClassifier
from lysep.preprocessing import TextColumn
from lysep.text import aligned

_SHOWN = 8  # names, of those that may be many


def report(classifier: LySepClassifier) -> str:
    """Classes and features, layer by layer the gaps at the end of training, and how it was trained.

    >>> from sklearn.datasets import load_iris
    >>> import lysep
    >>> print(report(lysep.LySepClassifier(max_iter=2).fit(*load_iris(return_X_y=True))).splitlines()[0])
    classes     3: 0, 1, 2
    """
    facts = [["classes", f"{len(classifier.classes_)}: {_listed(classifier.classes_.tolist())}"], *_input(classifier)]
    facts += _training(classifier)
    return f"{aligned(facts, left=2)}\n\n{aligned(_layers(classifier), left=2)}\n\n{_NOTE}"


_NOTE = (
    "gap: ‖W_l V_l + b_l 1ᵀ − c_l‖², how far the layer was from its auxiliary variable after the last sweep;\n"
    "weight: what it counts in the separated objective S. The bound is never below the cross-entropy."
)


def _input(classifier: LySepClassifier) -> list[list[str]]:
    names = getattr(classifier, "feature_names_in_", None)
    shape = classifier.sample_shape_
    facts = [["input", f"samples of shape {shape}" if len(shape) > 1 else f"{shape[0]} features"]]
    if classifier.preprocessing is not None:
        columns = classifier.encoder_.columns
        texts = sum(isinstance(column, TextColumn) for column in columns)
        facts[0][1] = f"a table of {len(columns)} columns ({texts} of text), encoded as {shape[0]} features"
    if names is not None:
        facts.append(["columns", _listed(names.tolist())])
    if classifier.target_name_ is not None:
        facts.append(["target", classifier.target_name_])
    return facts


def _training(classifier: LySepClassifier) -> list[list[str]]:
    loss, history = classifier.separated_loss_, classifier.history_
    last, kept = classifier.n_iter_, classifier.kept_iter_
    facts = [
        ["method", _method(methods.describe(classifier.method))],
        ["sweeps", str(last) if kept == last else f"{last}; the model is that of sweep {kept}"],
        ["ended", classifier.status_.message],
        *(["remark", remark] for remark in classifier.remarks_),
        ["last sweep", f"cross-entropy {loss.cross_entropy:.4g}, accuracy {loss.accuracy:.2%}, bound {loss.bound:.4g}"],
    ]
    if "validation_cross_entropy" in history and len(history):
        best = min(range(len(history)), key=history["validation_cross_entropy"].__getitem__)
        row = history.row(best)
        facts.append(
            [
                "validation",
                f"cross-entropy {row['validation_cross_entropy']:.4g}, accuracy {row['validation_accuracy']:.2%} "
                f"at sweep {row['sweep']:.0f}",
            ]
        )
    record = getattr(classifier, "record_", None)
    if record is not None:
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        facts += [["trained", record["finished"]], ["with", versions]]
    return facts


def _method(described: dict[str, Any] | None) -> str:
    if described is None:
        return "not one of lysep's own"
    options = ", ".join(f"{name}={value!r}" for name, value in described["options"].items())
    return f"{described['name']} ({options})"


def _layers(classifier: LySepClassifier) -> list[list[str]]:
    """One row a module; gaps stand with the linear modules that they belong to."""
    loss = classifier.separated_loss_
    gaps = iter(zip(loss.gaps, loss.weights, strict=False))
    rows = [["layer", "module", "parameters", "gap", "weight"]]
    for place, module in enumerate(leaves(classifier.model_)):
        count = sum(parameter.numel() for parameter in module.parameters())
        gap = next(gaps, None) if isinstance(module, nn.Linear | nn.Conv2d) else None
        numbers = ["", ""] if gap is None else [f"{value:.3g}" for value in gap]
        rows.append([str(place), str(module), f"{count:,}" if count else "", *numbers])
    return rows


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return shown if len(values) <= _SHOWN else f"{shown} and {len(values) - _SHOWN} more"
