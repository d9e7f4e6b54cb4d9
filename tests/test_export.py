"""An exported file gives what the classifier gives, by a runtime that knows nothing of us."""

import copy
import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import lysep
from architectures import problems
from lysep.export import export_onnx
from lysep.problems import circle
from small import X, Y
from test_activations import MODULES

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads, OPTIONS.log_severity_level = 1, 3


def run(path, X):
    return onnxruntime.InferenceSession(path, OPTIONS).run(["probabilities"], {"X": X})[0]


def classifier_of(problem):
    """A classifier that has been trained, but with the problem's own parameters again: they may have any size."""
    classes = problem.model[-1].out_features
    samples = problem.X.repeat(classes, *[1] * (problem.X.dim() - 1)).numpy()
    classifier = lysep.LySepClassifier(network=lambda: copy.deepcopy(problem.model), max_iter=1)
    classifier.fit(samples, np.arange(len(samples)) % classes)
    classifier.model_ = problem.model
    return classifier


@given(problem=problems(), single=st.booleans())
def test_any_network(problem, single, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    classifier = classifier_of(problem)
    if single:
        problem.model.float()
        problem.X = problem.X.float()
    assert export_onnx(classifier, path).startswith(f"X: the features, in {'float32' if single else 'float64'}")
    with torch.no_grad():
        expected = F.softmax(problem.model(problem.X), 1)
    np.testing.assert_allclose(run(path, problem.X.numpy()), expected, atol=2e-5)


def test_a_deep_network_in_all_its_digits(tmp_path):
    """Behind many layers the features are nearly dependent, and what tells classes apart is not there in float32."""
    data = circle(train=300)
    X, y = data.X_train.numpy(), data.y_train.numpy()
    classifier = lysep.LySepClassifier((10,) * 9, max_iter=100, random_state=0).fit(X, y)
    export_onnx(classifier, tmp_path / "model.onnx")
    np.testing.assert_allclose(run(tmp_path / "model.onnx", X), classifier.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("module", [case for case in MODULES if type(case) not in (nn.GELU,)], ids=repr)
def test_activations_in_all_their_digits(module, tmp_path):
    model = nn.Sequential(nn.Linear(1, 5), module, nn.Linear(5, 2)).double()
    inputs = torch.linspace(-40.0, 40.0, 161, dtype=torch.float64)[:, None]
    classifier = lysep.LySepClassifier(network=lambda: model, max_iter=1).fit(X[:, :1].numpy(), Y.numpy())
    export_onnx(classifier, tmp_path / "model.onnx")
    expected = classifier.predict_proba(inputs.numpy())
    np.testing.assert_allclose(run(tmp_path / "model.onnx", inputs.numpy()), expected, atol=1e-8)


def test_a_table_of_numbers_with_gaps_in_any_scale(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"seconds": 1.7e9 + rng.random(80), "tiny": rng.random(80) * 1e-30, "seven": 7.0, "yes": rng.random(80) > 0.5}
    )
    table.loc[::9, "tiny"] = np.nan
    labels = np.where(table.seconds > 1.7e9 + 0.5, "late", "early")
    classifier = lysep.LySepClassifier((5, 4), preprocessing="table", max_iter=30, random_state=0).fit(table, labels)
    words = export_onnx(classifier, tmp_path / "model.onnx")
    assert words == "X: the table's columns in float64, NaN where a value is missing: seconds, tiny, seven, yes"
    ours = classifier.predict_proba(table)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", table.to_numpy(dtype=float)), ours, atol=1e-9)
    meaning = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert meaning["classes"] == ["early", "late"]
    assert meaning["columns"] == table.columns.tolist()


def test_texts_are_left_to_the_encoder_and_that_is_said(tmp_path):
    table = pd.DataFrame({"x": X[:, 0], "side": np.where(X[:, 1] > 0, "up", "down")})
    classifier = lysep.LySepClassifier(preprocessing="table", max_iter=5).fit(table, Y.numpy())
    assert "the text columns (side) cannot be encoded" in export_onnx(classifier, tmp_path / "model.onnx")
    features = classifier.encoder_.transform(table)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", features), classifier.predict_proba(table), atol=1e-9)


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    classifier = lysep.LySepClassifier(max_iter=1).fit(X.numpy(), Y.numpy())
    with pytest.raises(OSError, match="none"):
        export_onnx(classifier, tmp_path / "none" / "model.onnx")
    with pytest.raises(ValueError, match="not fitted"):
        export_onnx(lysep.LySepClassifier(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
