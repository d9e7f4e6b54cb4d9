"""The commands around a model, from a table in a file to predictions; and five hundred inputs that are wrong."""

import inspect
import re

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lysep
from lysep.cli import main
from lysep.cli.main import parser
from lysep.cli.train import hidden_layers


def run(*arguments):
    return main(list(map(str, arguments)))


def test_train_says_what_it_did_and_evaluates(wine, tmp_path, capsys):
    command = ["train", wine / "train.csv", "--target", "target", "--out", tmp_path / "model"]
    options = ["--hidden", "12,8", "--early-stopping", "--seed", "3", "--max-iter", "60", "--activation", "relu"]
    assert run(*command, *options, "--test", wine / "test.csv", "--drop", "ash") == 0
    out, err = capsys.readouterr()
    assert re.match(r"\d+ sweeps: cross-entropy .*, accuracy .*%, bound .*\nended: .*\n(.*\n)*saved to ", out)
    accuracy, right = re.search(r"^accuracy +(\S+) +\((\d+) of 54\)$", out, flags=re.MULTILINE).groups()
    assert float(accuracy) == pytest.approx(int(right) / 54, abs=1e-4)
    assert float(accuracy) > 0.85
    assert err == ""  # no progress bar where there is no terminal
    classifier = lysep.load(tmp_path / "model")
    assert classifier.get_params() | {"method": None} == lysep.LySepClassifier(
        hidden_layer_sizes=(12, 8),
        early_stopping=True,
        random_state=3,
        max_iter=60,
        activation="relu",
        preprocessing="table",
        verbose=True,
    ).get_params() | {"method": None}
    assert "ash" not in classifier.feature_names_in_


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_held_out_accuracy_is_within_two_points_of_mlpclassifier(load, tmp_path):
    """The same layers, neither tuned; benchmarks/tables.py tunes both."""
    ours, theirs = [], []
    for seed in range(3):
        train, test = train_test_split(load(as_frame=True).frame, test_size=0.25, random_state=seed)
        train.to_csv(tmp_path / "a.csv", index=False)
        X, y = train.drop(columns="target"), train["target"]
        command = ["train", tmp_path / "a.csv", "--target", "target", "--hidden", "30", "--out", tmp_path / "m"]
        assert run(*command, "--seed", seed) == 0
        ours.append(lysep.load(tmp_path / "m").score(test.drop(columns="target"), test["target"]))
        mlp = make_pipeline(StandardScaler(), MLPClassifier((30,), max_iter=1000, random_state=seed)).fit(X, y)
        theirs.append(mlp.score(test.drop(columns="target"), test["target"]))
    assert np.mean(ours) >= np.mean(theirs) - 0.02


def test_evaluate(wine, tmp_path, capsys):
    assert run("evaluate", wine / "model", wine / "test.csv", "--picture", tmp_path / "a.png") == 0
    report = capsys.readouterr().out
    test = pd.read_csv(wine / "test.csv")
    classifier = lysep.load(wine / "model")
    probabilities = classifier.predict_proba(test.drop(columns="target"))
    predicted = classifier.classes_[probabilities.argmax(1)]
    right = (predicted == test["target"]).sum()
    assert f"({right} of {len(test)})" in report
    assert f"cross-entropy  {log_loss(test['target'], probabilities):.4g}" in re.sub(" +", "  ", report)
    for name in classifier.classes_:
        true, said = test["target"] == name, predicted == name
        shares = [(true & said).sum() / said.sum(), (true & said).sum() / true.sum()]
        line = next(line for line in report.splitlines() if line.startswith(name))
        assert [float(cell) for cell in line.split()[1:3]] == pytest.approx(shares, abs=1e-3)
        assert line.split()[-1] == str(true.sum())
    matrix = pd.crosstab(test["target"], predicted).to_numpy()
    rows = [list(map(int, line.split()[1:])) for line in report.splitlines()[-3:]]
    np.testing.assert_array_equal(rows, matrix)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert run("evaluate", wine / "model", wine / "test.parquet") == 0
    assert capsys.readouterr().out == report


def test_predict(wine, tmp_path, capsys):
    assert run("predict", wine / "model", wine / "test.csv", "-o", tmp_path / "out.csv") == 0
    assert capsys.readouterr().out == ""
    written = pd.read_csv(tmp_path / "out.csv")
    table = pd.read_csv(wine / "test.csv").drop(columns="target")
    classifier = lysep.load(wine / "model")
    assert written["prediction"].tolist() == classifier.predict(table).tolist()
    np.testing.assert_array_equal(written.iloc[:, 1:], classifier.predict_proba(table))
    assert written.columns.tolist() == ["prediction", *(f"probability of {c}" for c in ("red", "rose", "white"))]
    assert run("predict", wine / "model", wine / "test.csv") == 0
    assert capsys.readouterr().out == (tmp_path / "out.csv").read_text()


def test_inspect(wine, capsys):
    assert run("inspect", wine / "model") == 0
    report = capsys.readouterr().out
    for line in (
        r"classes +3: red, rose, white",
        r"input +a table of 14 columns \(1 of text\), encoded as 16 features",
        r"method +fast \(start='auto'\)",
        r"sweeps +\d+",
        r"last sweep +cross-entropy .*, accuracy .*%, bound .*",
        r"0 +Linear\(in_features=16, out_features=10, bias=True\) +170 +\S+ +\S+",
        r"4 +Linear\(in_features=10, out_features=3, bias=True\) +33",
    ):
        assert re.search(f"^{line}$", report, flags=re.MULTILINE), line


def test_export(tmp_path, capsys):
    table = load_breast_cancer(as_frame=True).frame
    table.to_csv(tmp_path / "a.csv", index=False)
    assert run("train", tmp_path / "a.csv", "--target", "target", "--out", tmp_path / "m", "--max-iter", 20) == 0
    assert run("export", tmp_path / "m", tmp_path / "m.onnx") == 0
    assert "X: the table's columns in float64" in capsys.readouterr().out
    X = table.drop(columns="target")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (probabilities,) = session.run(None, {"X": X.to_numpy()})
    np.testing.assert_allclose(probabilities, lysep.load(tmp_path / "m").predict_proba(X), atol=1e-9)


def test_a_killed_run_is_continued_by_the_same_command(wine, tmp_path):
    command = ["train", wine / "train.csv", "--target", "target", "--hidden", "3x6", "--tol", "0", "--method", "paper"]
    assert run(*command, "--out", tmp_path / "straight", "--max-iter", 30) == 0
    assert run(*command, "--out", tmp_path / "part", "--max-iter", 11, "--checkpoint", tmp_path / "run") == 0
    assert run(*command, "--out", tmp_path / "resumed", "--max-iter", 30, "--checkpoint", tmp_path / "run") == 0
    tensors = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "resumed", "part")]
    assert tensors[0] == tensors[1] != tensors[2]


@pytest.mark.parametrize(
    ("text", "widths"),
    [("20x10", (10,) * 19), ("2x1", (1,)), ("30", (30,)), ("30,20,10", (30, 20, 10))],
)
def test_hidden_layers(text, widths):
    assert hidden_layers(text) == widths


@pytest.mark.parametrize(
    "text", ["", "x", "1x10", "20x", "0", "-3", "3,,4", "3,x", "axb", "2x3x4", "99999999x10", "1.5"]
)
def test_hidden_layers_that_are_none(text, capsys):
    with pytest.raises(SystemExit) as stopped:
        run("train", "a.csv", "--target", "y", "--out", "m", f"--hidden={text}")
    assert stopped.value.code == 2
    assert "neither DEPTHxWIDTH, such as 20x10" in capsys.readouterr().err


def test_the_defaults_that_the_help_names_are_those_of_the_classifier(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["train", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    defaults = {name: p.default for name, p in inspect.signature(lysep.LySepClassifier).parameters.items()}
    for option, name in {
        "activation": "activation",
        "method": "method",
        "max-iter": "max_iter",
        "tol": "tol",
        "validation-fraction": "validation_fraction",
        "n-iter-no-change": "n_iter_no_change",
    }.items():
        (said,) = re.findall(
            rf"--{option} \S+ (?:(?!--)[^()])*\(default (\S+)\)", text.split("training:", 1)[0] + text
        )[-1:]
        assert said == f"{defaults[name]:g}" if isinstance(defaults[name], float) else str(defaults[name]), option
    assert f"(fast: {lysep.Fast.refresh_every}, paper: {lysep.Paper.refresh_every})" in text
    assert "20x10 is a network of depth 20: 19 hidden layers of width 10" in text


@pytest.mark.parametrize("command", ["train", "evaluate", "predict", "inspect", "export"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(command, "--help")
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train {home}/none.csv --target y --out {new}", "none.csv does not exist"),
        ("train {home}/train.csv --target taget --out {new}", "there is no column 'taget'. Did you mean 'target'?"),
        ("train {home}/train.csv --target target --out {home}", "is not a lysep model, so it is not replaced"),
        ("train {home}/train.csv --target target --out {new} --drop x", "there is no column 'x'"),
        ("train {home}/train.csv --target target --out {new} --activation tan", "Did you mean 'tanh'?"),
        ("train {home}/train.csv --target alcohol --out {new}", "Unknown label type"),
        ("train {home}/train.csv --target target --out {new} --max-iter 0", "max_iter=0 must be a positive integer"),
        ("train {home}/train.csv --target target --out {new} --tol nan", "tol=nan must be"),
        ("train {home}/train.csv --target target --out {new} --hidden 9999x99999", "would make a network of"),
        ("evaluate {home} {home}/test.csv", "lysep.json"),
        ("evaluate {home}/model {home}/test.csv --target ash", "column 'ash' has"),
        (
            "evaluate {home}/model {home}/test.csv --target cellar",
            "the table lacks 'cellar'|among the classes|also has",
        ),
        ("evaluate {home}/model {home}/test.csv --drop ash", "the table lacks 'ash'"),
        ("evaluate {home}/model {home}/test.csv --picture {new}.nonsense", "nonsense"),
        ("predict {home}/model {home}/model", "is of no kind that can be read"),
        ("predict {home}/model {home}/test.csv -o {new}/deep/out.csv", "No such file"),
        ("inspect {home}/none", "is not a directory with a saved model"),
        ("export {home}/model {new}/deep/m.onnx", "No such file"),
    ],
)
def test_errors_are_one_line(arguments, message, wine, tmp_path, capsys):
    assert main(arguments.format(home=wine, new=tmp_path / "new").split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"lysep: error: [^\n]+\n", err)
    assert any(part in err for part in message.split("|"))
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback():
    with pytest.raises(FileNotFoundError):
        run("--debug", "inspect", "none")


@pytest.mark.parametrize(
    "arguments", ["train a.csv", "train --out m", "predict m", "evaluate", "inspect", "nonsense", ""]
)
def test_bad_usage_exits_with_two(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
