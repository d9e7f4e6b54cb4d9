"""The classifier keeps scikit-learn's contract, and is `lysep.fit` underneath."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn
from torch.nn import functional as F

import lysep
from lysep import LySepClassifier
from small import X as DISK
from small import Y as INSIDE

X, Y = load_iris(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def small(**options):
    return LySepClassifier(**{"hidden_layer_sizes": (6, 5), "max_iter": 20, "random_state": 0, **options})


def tiny_network(n_classes, sample_shape):
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 3, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, n_classes)
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")  # a check of array libraries that are absent
def test_scikit_learns_own_checks():
    failed = []

    def note(*, check_name, exception, status, **rest):
        if status not in ("passed", "skipped"):
            failed.append((check_name, exception))

    results = check_estimator(LySepClassifier(), on_fail=None, callback=note)
    assert failed == []
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # runs only where SCIPY_ARRAY_API is set
    assert len(results) > 50


def test_it_is_fit_of_the_same_network():
    ours = small(tol=0.0).fit(DISK.numpy(), INSIDE.numpy())
    model = copy.deepcopy(small(max_iter=1, tol=0.0, warm_start=True).fit(DISK.numpy(), INSIDE.numpy()).model_)
    lysep.fit(model, DISK, INSIDE, sweeps=1)
    twice = small(max_iter=1, tol=0.0, warm_start=True).fit(DISK.numpy(), INSIDE.numpy())
    twice.fit(DISK.numpy(), INSIDE.numpy())
    for p, q in zip(twice.model_.parameters(), model.parameters(), strict=True):
        assert torch.equal(p, q)
    with torch.no_grad():
        probabilities = F.softmax(ours.model_(DISK), 1).numpy()
    np.testing.assert_allclose(ours.predict_proba(DISK.numpy()), probabilities, rtol=1e-12)
    assert ours.loss_curve_ == ours.history_["cross_entropy"]
    assert ours.n_iter_ == ours.kept_iter_ == 20
    assert ours.status_ is lysep.Status.COMPLETED


def test_the_global_generator_is_left_alone_and_a_seed_gives_the_same_bits():
    before = torch.get_rng_state()
    images = np.random.default_rng(0).random((30, 1, 8, 8))
    labels = np.arange(30) % 3
    first = small(network=tiny_network).fit(images, labels)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    second = small(network=tiny_network).fit(images, labels)
    np.testing.assert_array_equal(first.predict_proba(images), second.predict_proba(images))
    other = small(network=tiny_network, random_state=1).fit(images, labels)
    assert np.abs(first.predict_proba(images) - other.predict_proba(images)).max() > 1e-6


@pytest.mark.parametrize(
    "labels",
    [
        NAMES,
        NAMES.astype(object),
        NAMES == "setosa",
        Y * 7 - 3,
        Y.astype(np.uint8),
        pd.Series(NAMES).astype("category"),
    ],
)
def test_any_label_type(labels):
    classifier = small(max_iter=100).fit(X, labels)
    assert classifier.classes_.tolist() == sorted(set(labels))
    predicted = classifier.predict(X)
    assert predicted.dtype == classifier.classes_.dtype
    assert (predicted == np.asarray(labels)).mean() > 0.9
    assert classifier.score(X, labels) == (predicted == np.asarray(labels)).mean()


def test_labels_that_cannot_be_compared():
    with pytest.raises(ValueError, match=r"y mixes labels that cannot be compared \(NoneType, str\)"):
        small().fit(X[:4], np.array(["a", None, "b", "a"], dtype=object))


def test_decision_and_probabilities_agree():
    binary = small().fit(X, Y == 0)
    decision, probabilities = binary.decision_function(X), binary.predict_proba(X)
    np.testing.assert_allclose(decision, np.log(probabilities[:, 1] / probabilities[:, 0]), rtol=1e-6, atol=1e-9)
    many = small().fit(X, Y)
    np.testing.assert_allclose(many.predict_log_proba(X), np.log(many.predict_proba(X)), rtol=1e-9)
    assert many.decision_function(X).shape == (len(X), 3)
    assert many.to_torch() is not many.model_


def test_large_predictions_in_parts_are_the_same(monkeypatch):
    classifier = small().fit(X, Y)
    whole = classifier.predict_proba(X)
    monkeypatch.setattr("lysep.estimator._PREDICTED_AT_ONCE", 28)
    np.testing.assert_allclose(classifier.predict_proba(X), whole, rtol=1e-12)


def test_pipelines_searches_clones_and_pickles():
    pipeline = make_pipeline(StandardScaler(), small(max_iter=30))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.85
    search = GridSearchCV(pipeline, {"lysepclassifier__hidden_layer_sizes": [(4,), (6, 5)]}, cv=2).fit(X, NAMES)
    assert search.best_score_ > 0.8
    parallel = cross_val_score(small(max_iter=3), X, Y, cv=2, n_jobs=2)
    np.testing.assert_array_equal(parallel, cross_val_score(small(max_iter=3), X, Y, cv=2))
    fitted = small().fit(X, NAMES)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert not hasattr(clone(fitted), "model_")
    method = lysep.Paper(start=1.2)
    assert clone(small(method=method)).method == method


def test_joblib(tmp_path):
    fitted = small().fit(X, NAMES)
    joblib.dump(fitted, tmp_path / "model")
    np.testing.assert_array_equal(joblib.load(tmp_path / "model").predict(X), fitted.predict(X))


def test_data_frames_keep_their_names():
    frame = load_iris(as_frame=True).data
    classifier = small().fit(frame, pd.Series(NAMES, name="species"))
    assert classifier.feature_names_in_.tolist() == frame.columns.tolist()
    assert classifier.target_name_ == "species"
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame.rename(columns=str.upper))
    with pytest.raises(ValueError, match="3 features"):
        small().fit(X, Y).predict(X[:, :3])


def test_a_weight_counts_as_a_repetition():
    weights = np.random.default_rng(0).integers(0, 4, len(Y))
    options = {"max_iter": 10, "class_weight": "balanced"}
    weighted = small(**options).fit(X, NAMES, sample_weight=weights)
    repeated = small(**options).fit(X.repeat(weights, 0), NAMES.repeat(weights))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-7)
    assert weighted.loss_curve_ == pytest.approx(repeated.loss_curve_, rel=1e-9)


def test_a_weight_counts_as_a_repetition_in_a_table_too():
    table = pd.DataFrame(X, columns=list("abcd"))
    table.loc[::7, "a"] = np.nan
    table["e"] = np.where(table.b > 0, "yes", "no")
    weights = np.random.default_rng(1).integers(0, 3, len(Y))
    weighted = small(preprocessing="table", max_iter=5).fit(table, NAMES, sample_weight=weights)
    rows = np.arange(len(Y)).repeat(weights)
    repeated = small(preprocessing="table", max_iter=5).fit(table.iloc[rows], NAMES[rows])
    np.testing.assert_allclose(weighted.predict_proba(table), repeated.predict_proba(table), rtol=1e-7)


def test_class_weights():
    counts = {"setosa": 1.0, "versicolor": 5.0, "virginica": 1.0}
    weighted = small().fit(X, NAMES, sample_weight=[counts[name] for name in NAMES])
    named = small(class_weight={"versicolor": 5.0}).fit(X, NAMES)
    np.testing.assert_array_equal(named.predict_proba(X), weighted.predict_proba(X))
    rare = np.where(np.arange(len(Y)) % 10 == 0, Y, 0)  # few of classes 1 and 2
    share = {name: len(Y) / (3 * (rare == name).sum()) for name in range(3)}
    balanced = small(class_weight="balanced").fit(X, rare)
    explicit = small().fit(X, rare, sample_weight=[share[name] for name in rare])
    np.testing.assert_allclose(balanced.predict_proba(X), explicit.predict_proba(X), rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match=r"class_weight names \['setsa'\], but the classes \['setosa', .*no weight"):
        small(class_weight={"setsa": 2.0}).fit(X, NAMES)


def test_early_stopping_keeps_the_best_model_on_validation():
    noisy = np.where(np.random.default_rng(0).random(len(Y)) < 0.3, (Y + 1) % 3, Y)
    stopped = small(max_iter=300, early_stopping=True, validation_fraction=0.3, n_iter_no_change=20).fit(X, noisy)
    validation = stopped.history_["validation_cross_entropy"]
    best = int(np.argmin(validation))
    assert stopped.status_ is lysep.Status.STOPPED
    assert stopped.kept_iter_ == best + 1
    assert stopped.n_iter_ == len(validation) == best + 21
    fewer = small(max_iter=best + 1, early_stopping=True, validation_fraction=0.3, n_iter_no_change=1000).fit(X, noisy)
    np.testing.assert_allclose(stopped.predict_proba(X), fewer.predict_proba(X), rtol=1e-9)


def test_training_ends_where_no_improvement_counts():
    learnt = small(max_iter=500, tol=1e-3).fit(X, Y == 0)
    assert learnt.loss_curve_[-1] <= 1e-3 < learnt.loss_curve_[-2]
    assert learnt.remarks_[-1] == "the cross entropy is not above 0.001: no improvement would count any more"
    stuck = small(max_iter=500, tol=0.05, n_iter_no_change=4).fit(X, np.random.default_rng(0).integers(0, 3, len(Y)))
    assert stuck.loss_curve_[-5] - min(stuck.loss_curve_[-4:]) <= 0.05
    assert stuck.remarks_[-1] == "the cross entropy did not improve by more than 0.05 in 4 sweeps"
    assert stuck.status_ is lysep.Status.STOPPED


def test_early_stopping_needs_every_class_on_both_sides():
    with pytest.raises(ValueError, match=r"cannot hold out validation_fraction=0.1 of 5 samples"):
        small(early_stopping=True).fit(X[:5], [0, 0, 0, 0, 1])


def test_warm_start_goes_on():
    warm = small(max_iter=5, warm_start=True).fit(X, Y)
    loss = warm.loss_curve_[-1]
    warm.fit(X, Y)
    assert warm.n_iter_ == len(warm.loss_curve_) == 10
    assert warm.loss_curve_[5] < loss
    with pytest.raises(ValueError, match=r"y holds \[9\], not among the classes \[0, 1, 2\]"):
        warm.fit(X, np.where(Y == 2, 9, Y))


def test_partial_fit():
    classifier = small()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        classifier.partial_fit(X, NAMES)
    for _ in range(30):
        for start in range(0, 150, 50):  # the classes are sorted: every batch holds one of them only
            rows = slice(start, start + 50)
            classifier.partial_fit(X[rows], NAMES[rows], classes=["virginica", "setosa", "versicolor"])
    assert classifier.n_iter_ == len(classifier.loss_curve_) == 90
    mixed = small()
    for _ in range(40):
        mixed.partial_fit(X, NAMES, classes=np.unique(NAMES))
    assert mixed.score(X, NAMES) > 0.9
    assert len(mixed.history_) == 1
    with pytest.raises(ValueError, match="is not the same as on the last call"):
        mixed.partial_fit(X, NAMES, classes=["setosa", "virginica"])
    with pytest.raises(ValueError, match=r"y holds \['rose'\]"):
        mixed.partial_fit(X[:1], ["rose"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early_stopping": True}, "early_stopping"),
        ({"class_weight": "balanced"}, "balanced"),
        ({"preprocessing": "table"}, "preprocessing"),
    ],
)
def test_partial_fit_refuses_what_needs_all_the_data(options, message):
    with pytest.raises(ValueError, match=f"partial_fit does not support .*{message}"):
        small(**options).partial_fit(X, Y, classes=[0, 1, 2])


def test_mini_batches():
    batches = small(batch_size=30, refresh_every=5, max_iter=12).fit(X, Y)
    assert batches.history_["batch"] == [1] * 5 + [2] * 5 + [3] * 2
    every = small(batch_size=30, refresh_every=1, max_iter=4).fit(X, Y)
    assert every.history_["batch"] == [1, 2, 3, 4]
    more_than_there_are = small(batch_size=1000).fit(X, Y)
    np.testing.assert_array_equal(more_than_there_are.predict_proba(X), small().fit(X, Y).predict_proba(X))


def test_images():
    images, labels = load_digits(return_X_y=True)
    images = images[:300].reshape(-1, 1, 8, 8) / 16.0
    classifier = LySepClassifier(network=tiny_network, max_iter=40, random_state=0).fit(images, labels[:300])
    assert classifier.score(images, labels[:300]) > 0.9
    assert classifier.sample_shape_ == (1, 8, 8)
    assert next(classifier.model_.parameters()).dtype == torch.float32  # as the function made it
    with pytest.raises(ValueError, match=r"shape \(1, 7, 8\), but the model takes \(1, 8, 8\)"):
        classifier.predict(images[:, :, :7])


def test_networks_of_functions_with_fewer_parameters():
    def bare():
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))

    assert small(network=bare).fit(X, Y).n_features_in_ == 4
    with pytest.raises(ValueError, match=r"network must return an nn\.Sequential, but returned a int"):
        small(network=lambda: 3).fit(X, Y)
    with pytest.raises(lysep.ModelError, match=r"not an nn\.Sequential"):
        small(network=lambda: nn.Linear(4, 3)).fit(X, Y)


def test_callbacks_time_limits_and_checkpoints_reach_fit(tmp_path):
    seen = []
    small(max_iter=3).fit(X, Y, callbacks=[lambda progress: seen.append(progress.sweep)])
    assert seen == [1, 2, 3]
    assert small().fit(X, Y, time_limit=1e-9).status_ is lysep.Status.TIME_LIMIT
    straight = small(tol=0.0).fit(X, Y)
    small(tol=0.0, max_iter=7).fit(X, Y, checkpoint=tmp_path)
    resumed = small(tol=0.0).fit(X, Y, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.predict_proba(X), straight.predict_proba(X))
    assert resumed.loss_curve_ == straight.loss_curve_
    early = {"early_stopping": True, "max_iter": 200, "preprocessing": "table"}
    table = pd.DataFrame(X, columns=list("abcd"))
    once = small(**early).fit(table, NAMES)
    small(**{**early, "max_iter": 5}).fit(table, NAMES, checkpoint=tmp_path / "early")
    for _ in range(2):  # the second time nothing is left to do
        again = small(**early).fit(table, NAMES, checkpoint=tmp_path / "early")
        np.testing.assert_array_equal(again.predict_proba(table), once.predict_proba(table))
        assert (again.kept_iter_, again.n_iter_) == (once.kept_iter_, once.n_iter_)
    with pytest.raises(ValueError, match="random_state=None with a checkpoint must be an integer"):
        small(random_state=None).fit(X, Y, checkpoint=tmp_path)


def test_bad_values_are_told_from_the_start():
    with pytest.raises(ValueError, match="Scale the features"):
        small(activation="relu", method="paper").fit(X * 1e300, Y)
    with pytest.raises(ValueError, match="would make a network of 10,000,700,000 weights"):
        small(hidden_layer_sizes=(10**5, 10**5)).fit(X, Y)
    with pytest.raises(ValueError, match="X and y have inconsistent numbers of samples: 150 and 149"):
        small().fit(X, Y[:-1])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("hidden_layer_sizes", (), "a positive integer, or a sequence"),
        ("hidden_layer_sizes", (5, 0), "a positive integer, or a sequence"),
        ("hidden_layer_sizes", 2.5, "a positive integer, or a sequence"),
        ("activation", "tahn", "Did you mean 'tanh'?"),
        ("activation", nn.Tanh, "must be one of 'identity'"),
        ("method", 3, "a name, or an instance"),
        ("method", "papre", "method='papre' is unknown"),
        ("max_iter", 0, "a positive integer"),
        ("max_iter", True, "a positive integer"),
        ("batch_size", -1, "a positive integer, or None"),
        ("refresh_every", 1.5, "a positive integer"),
        ("tol", float("nan"), "zero or a positive number"),
        ("early_stopping", "yes", "True or False"),
        ("validation_fraction", 1.0, "between 0 and 1"),
        ("n_iter_no_change", 0, "a positive integer"),
        ("class_weight", "balance", "'balanced', or a dictionary"),
        ("class_weight", {0: -1.0}, "'balanced', or a dictionary"),
        ("network", nn.Sequential(), "a function that returns"),
        ("preprocessing", "tables", "Did you mean 'table'?"),
        ("warm_start", None, "True or False"),
    ],
)
def test_bad_parameters_are_named(parameter, value, message):
    classifier = small(**{parameter: value})
    with pytest.raises(ValueError, match=parameter) as caught:
        classifier.fit(X, Y)
    assert message in str(caught.value)
    assert not hasattr(classifier, "model_")


def test_it_costs_nothing_until_it_is_used():
    import subprocess
    import sys

    seen = "'sklearn' in sys.modules"
    code = f"import sys, lysep; print({seen}, hasattr(lysep, 'LySepClassifier'), {seen})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = lysep.Nonsense
