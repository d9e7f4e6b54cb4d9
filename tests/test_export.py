"""An exported file gives what the classifier gives, by a runtime that knows nothing of us."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import given
from torch.nn import functional as F

import lysep
from architectures import problems
from lysep.export import export_onnx
from small import X, Y

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.intra_op_num_threads, OPTIONS.log_severity_level = 1, 3


def run(path, X):
    return onnxruntime.InferenceSession(path, OPTIONS).run(["probabilities"], {"X": X})[0]


@given(problem=problems())
def test_any_network(problem, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    classes = problem.model[-1].out_features
    labels = np.arange(4 * classes) % classes
    samples = problem.X.repeat(4 * classes, *[1] * (problem.X.dim() - 1))[: 4 * classes]
    classifier = lysep.LySepClassifier(network=lambda: problem.model, max_iter=1).fit(samples.numpy(), labels)
    export_onnx(classifier, path)
    with torch.no_grad():
        expected = F.softmax(classifier.model_(problem.X), 1)
    np.testing.assert_allclose(run(path, problem.X.numpy().astype(np.float32)), expected, atol=2e-5)


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
    np.testing.assert_allclose(run(tmp_path / "model.onnx", table.to_numpy(dtype=float)), ours, atol=1e-5)
    meaning = {entry.key: json.loads(entry.value) for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert meaning["classes"] == ["early", "late"]
    assert meaning["columns"] == table.columns.tolist()


def test_texts_are_left_to_the_encoder_and_that_is_said(tmp_path):
    table = pd.DataFrame({"x": X[:, 0], "side": np.where(X[:, 1] > 0, "up", "down")})
    classifier = lysep.LySepClassifier(preprocessing="table", max_iter=5).fit(table, Y.numpy())
    assert "the text columns (side) cannot be encoded" in export_onnx(classifier, tmp_path / "model.onnx")
    features = classifier.encoder_.transform(table).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", features), classifier.predict_proba(table), atol=1e-5)


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    classifier = lysep.LySepClassifier(max_iter=1).fit(X.numpy(), Y.numpy())
    with pytest.raises(OSError, match="none"):
        export_onnx(classifier, tmp_path / "none" / "model.onnx")
    with pytest.raises(ValueError, match="not fitted"):
        export_onnx(lysep.LySepClassifier(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
