"""Saved models: what comes back is what was saved, and nothing that is not a model is taken for one."""

import hashlib
import json
import os

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import lysep
from architectures import problems
from lysep import LySepClassifier, atomic
from lysep.architecture import Architecture
from small import X, Y

TABLE = pd.DataFrame({"x": X[:, 0], "y": X[:, 1], "side": np.where(X[:, 0] > 0, "right", "left")})
LABELS = pd.Series(np.where(Y == 1, "in", "out"), name="place")


def fitted(**options):
    options = {"hidden_layer_sizes": (4, 3), "max_iter": 4, "random_state": 0, "preprocessing": "table", **options}
    return LySepClassifier(**options).fit(TABLE, LABELS)


@pytest.fixture
def model(tmp_path):
    """A directory with a saved model."""
    fitted().save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(model, change):
    """Change the description, as a person or a bad disk might."""
    path = model / "lysep.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))


def retensor(model, change):
    """Change the parameters, and the checksum with them."""
    tensors = load_file(model / "model.safetensors")
    change(tensors)
    save_file(tensors, model / "model.safetensors")
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    rewrite(model, lambda d: d.update(sha256=digest))


def test_it_predicts_what_it_predicted(tmp_path):
    options = {"early_stopping": True, "class_weight": {"in": 2.0}, "method": lysep.Paper(start=1.3), "max_iter": 30}
    before = fitted(**options)
    lysep.save(before, tmp_path / "deep" / "model")
    after = lysep.load(str(tmp_path / "deep" / "model"))
    np.testing.assert_array_equal(after.predict_proba(TABLE), before.predict_proba(TABLE))
    assert after.predict(TABLE).tolist() == before.predict(TABLE).tolist()
    assert after.get_params() == before.get_params()
    for name in ("n_iter_", "kept_iter_", "status_", "target_name_", "separated_loss_", "loss_curve_", "sample_shape_"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.history_.to_dict() == before.history_.to_dict()
    assert after.feature_names_in_.tolist() == ["x", "y", "side"]
    assert after.record_["versions"]["torch"] == torch.__version__
    assert after.fit(TABLE, LABELS).predict_proba(TABLE).tolist() == before.predict_proba(TABLE).tolist()
    assert sorted(os.listdir(tmp_path / "deep" / "model")) == ["lysep.json", "model.safetensors"]


@given(problems())
def test_every_architecture_comes_back(problem):
    description = json.loads(json.dumps(Architecture.of(problem.model).to_dict()))
    again = Architecture.from_dict(description)()
    again.load_state_dict(problem.model.state_dict())
    with torch.no_grad():
        assert torch.equal(again(problem.X), problem.model(problem.X))


def test_names_and_nesting_are_kept_and_plain_pytorch_reads_the_parameters(tmp_path):
    def network(n_classes):
        body = nn.Sequential(nn.Conv2d(1, 2, (3, 2), padding=(1, 0)), nn.ELU(0.7))
        model = nn.Sequential()
        model.add_module("body", body)
        model.add_module("flat", nn.Flatten())
        model.add_module("head", nn.Linear(24, n_classes))
        return model

    images = np.random.default_rng(0).random((20, 1, 4, 4))
    before = LySepClassifier(network=network, max_iter=2).fit(images, np.arange(20) % 3)
    before.save(tmp_path / "model")
    after = lysep.load(tmp_path / "model")
    np.testing.assert_array_equal(after.predict_proba(images), before.predict_proba(images))
    plain = network(3)
    plain.load_state_dict(load_file(tmp_path / "model" / "model.safetensors"))
    assert list(after.to_torch().state_dict()) == list(plain.state_dict())
    with torch.no_grad():
        assert torch.equal(after.to_torch()(torch.ones(1, 1, 4, 4)), plain(torch.ones(1, 1, 4, 4)))
    after.fit(images, np.arange(20) % 3)  # the architecture is remembered, though the function is not


@pytest.mark.parametrize(
    "labels", [Y.numpy(), Y.numpy() == 1, Y.numpy().astype(np.int8), LABELS.to_numpy(), LABELS.to_numpy().astype("U")]
)
def test_classes_keep_their_type(labels, tmp_path):
    before = LySepClassifier(max_iter=2).fit(X.numpy(), labels)
    before.save(tmp_path / "model")
    after = lysep.load(tmp_path / "model")
    assert after.classes_.tolist() == before.classes_.tolist()
    assert type(after.classes_.tolist()[0]) is type(before.classes_.tolist()[0])
    if labels.dtype.kind != "U":
        assert after.classes_.dtype == before.classes_.dtype


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="only a LySepClassifier can be saved, not a Linear"):
        lysep.save(nn.Linear(1, 1), tmp_path / "model")
    with pytest.raises(ValueError, match="not fitted"):
        LySepClassifier().save(tmp_path / "model")
    odd = LySepClassifier(max_iter=1).fit(X.numpy(), Y.numpy())
    odd.classes_ = np.array([b"a", b"b"], dtype=object)
    with pytest.raises(ValueError, match="classes of type bytes cannot be saved"):
        odd.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_model_gives_way_to_a_new_one_and_nothing_else_does(model):
    fitted(random_state=1).save(model)
    assert lysep.load(model).random_state == 1
    (model / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a lysep model, so it is not replaced"):
        fitted().save(model)
    assert lysep.load(model).random_state == 1
    file = model.parent / "file"
    file.write_text("mine")
    with pytest.raises(FileExistsError, match="is not replaced"):
        fitted().save(file)
    (model.parent / "empty").mkdir()
    fitted().save(model.parent / "empty")
    assert sorted(os.listdir(model.parent)) == ["empty", "file", "model"]


@pytest.mark.parametrize("failing", ["write_bytes", "write_text", "rename", "chmod"])
def test_a_disk_that_fails_leaves_the_old_model(model, failing, monkeypatch):
    before = {file.name: file.read_bytes() for file in model.iterdir()}

    def fail(self, *arguments, **options):
        raise OSError(28, "No space left on device")

    new = fitted(random_state=1)
    with monkeypatch.context() as patch:
        patch.setattr(f"pathlib.Path.{failing}", fail)
        with pytest.raises(OSError, match="No space left"):
            new.save(model)
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    assert os.listdir(model.parent) == ["model"]


def test_a_rename_that_fails_half_way_puts_the_old_model_back(model, monkeypatch):
    calls, rename = [], type(model).rename

    def second_fails(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr("pathlib.Path.rename", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        fitted(random_state=1).save(model)
    assert lysep.load(model).random_state == 0


def test_new_files_are_whole_or_not_there(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), atomic.new_file(path) as draft:
        draft.write_bytes((tmp_path / "none").read_bytes())
    assert path.read_text() == "old"
    with atomic.new_file(path) as draft:
        draft.write_text("new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def architecture(d):
    return d["architecture"]["network"]["modules"]


def nested(d):
    for _ in range(30):
        d["architecture"]["network"] = {"name": "", "kind": "Sequential", "modules": [d["architecture"]["network"]]}
        d["architecture"]["network"]["modules"][0]["name"] = "0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "its format is 'other'"),
        (lambda d: d.update(version=2), "it is of version 2, and lysep .* reads version 1"),
        (lambda d: d.update(version="1"), "version must be an integer"),
        (lambda d: d.pop("architecture"), "has no 'architecture'"),
        (lambda d: d.update(sha256="0"), "checksum is wrong"),
        (lambda d: d.update(classes=None), "classes must be an object"),
        (lambda d: d["classes"].update(values=["out", "in"]), "in ascending order"),
        (lambda d: d["classes"].update(values=["in", "in"]), "in ascending order"),
        (lambda d: d["classes"].update(values=["in", 1]), "must be values of dtype object"),
        (lambda d: d["classes"].update(values=["a", "b", "c"]), "2 outputs, but there are 3 classes"),
        (lambda d: d["classes"].update(dtype="V8"), "dtype 'V8' are not known"),
        (lambda d: d["classes"].update(dtype="int9"), "int9"),
        (lambda d: d.update(sample_shape=[]), "shape"),
        (lambda d: d.update(sample_shape=[-3]), "an integer from 1"),
        (lambda d: d.update(sample_shape=[2**31 - 1] * 9), "too large"),
        (lambda d: d.update(sample_shape=[7]), "takes 4 features, but gets 7"),
        (lambda d: d.update(n_features=2), "n_features is 2, but the model takes 3"),
        (lambda d: d.update(feature_names=["x"]), "1 feature names for 3 features"),
        (lambda d: d.update(preprocessing=None), "disagree on whether there is preprocessing"),
        (lambda d: d["preprocessing"]["columns"].pop(), "preprocessing makes 2 features"),
        (lambda d: d["preprocessing"]["columns"][0].update(kind="code"), "unknown kind 'code'"),
        (lambda d: d["preprocessing"]["columns"][0].update(mean=None), "mean must be a finite number"),
        (lambda d: d["preprocessing"]["columns"][0].update(mean=10**400), "mean must be a finite number"),
        (lambda d: d["preprocessing"]["columns"][0].update(scale=-1.0), "must not be negative"),
        (lambda d: d["preprocessing"]["columns"][0].update(name="y"), "two columns of the same name"),
        (lambda d: architecture(d)[0].update(kind="os.system"), "the module kind 'os.system' is unknown"),
        (lambda d: architecture(d)[0].update(name="../evil"), "cannot name a module"),
        (lambda d: architecture(d)[0].update(name="forward"), "cannot name a module"),
        (lambda d: architecture(d)[0].update(out_features=-4), "an integer from 1"),
        (lambda d: architecture(d)[0].update(out_features=2**31), "an integer from 1"),
        (lambda d: architecture(d)[0].update(out_features=2**30), r"of shape \(4.*, but the architecture says"),
        (lambda d: architecture(d)[0].update(bias=False), "disagree on which parameters there are: \\['0.bias'\\]"),
        (lambda d: architecture(d).pop(), "disagree on which parameters"),
        (lambda d: architecture(d).insert(1, dict(architecture(d)[1], name="9")), "second activation"),
        (lambda d: d["architecture"].update(dtype="float16"), "dtype must be one of float32, float64"),
        (lambda d: d["architecture"].update(dtype="float32"), "torch.float64 of shape .* says torch.float32"),
        (nested, "nested too deeply"),
        (lambda d: d["parameters"].pop("tol"), "has no 'tol'"),
        (lambda d: d["parameters"].update(tol=-1), "tol=-1 must be zero or a positive number"),
        (lambda d: d["parameters"].update(method={"name": "evil", "options": {}}), "method='evil' is unknown"),
        (
            lambda d: d["parameters"].update(method={"name": "paper", "options": {"x": 1}}),
            "does not have these options",
        ),
        (lambda d: d["parameters"].update(class_weight=3), "class_weight must be a list"),
        (lambda d: d["parameters"].update(random_state="x"), "random_state must be an integer"),
        (lambda d: d["training"].update(status="DONE"), "status 'DONE' is not known"),
        (lambda d: d["training"].update(sweeps=-1), "sweeps must be an integer from 0"),
        (lambda d: d["training"]["history"].update(objective=["a"] * 4), "the history holds 'a', not a number"),
        (lambda d: d["training"]["history"]["objective"].pop(), "zip"),
        (lambda d: d["training"]["separated_loss"].pop("gaps"), "has no 'gaps'"),
    ],
)
def test_descriptions_that_are_wrong(model, change, message):
    rewrite(model, change)
    with pytest.raises(ValueError, match=f"does not hold a model that can be read: .*{message}"):
        lysep.load(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("0.weight"), "disagree on which parameters there are: \\['0.weight'\\]"),
        (lambda t: t.update(extra=torch.ones(1)), "disagree on which parameters there are: \\['extra'\\]"),
        (lambda t: t.update({"0.weight": t["0.weight"].T[:, :1].contiguous()}), "but the architecture says"),
        (lambda t: t.update({"0.weight": t["0.weight"].float()}), "is torch.float32 of shape"),
        (lambda t: t["0.weight"].fill_(float("nan")), "NaN or infinite"),
    ],
)
def test_parameters_that_do_not_fit(model, change, message):
    retensor(model, change)
    with pytest.raises(ValueError, match=f"does not hold a model that can be read: .*{message}"):
        lysep.load(model)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": NaN}', "[" * 10**5, "\x00", '"' + "9" * 5000])
def test_descriptions_that_are_no_description(model, text):
    (model / "lysep.json").write_text(text)
    with pytest.raises(ValueError, match=r"is not the description of a model|must be an object"):
        lysep.load(model)


def test_models_that_are_not_there(model):
    with pytest.raises(FileNotFoundError, match="is not a directory with a saved model"):
        lysep.load(model / "none")
    (model / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        lysep.load(model)


@given(cut=st.integers(0, 10**6), flip=st.integers(0, 10**6), shorten=st.booleans())
def test_no_damage_to_the_parameters_goes_unseen(cut, flip, shorten, tmp_path_factory):
    model = tmp_path_factory.mktemp("damaged") / "model"
    fitted(max_iter=1).save(model)
    path = model / "model.safetensors"
    data = bytearray(path.read_bytes())
    if shorten:
        del data[cut % len(data) :]
    else:
        data[cut % len(data)] ^= 1 << flip % 8
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged, or belongs to another model"):
        lysep.load(model)
