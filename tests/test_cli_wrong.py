"""Five hundred inputs of the command line that are wrong: refused in a sentence, and nothing half done."""

import hashlib
import json
import random

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

import lysep
from lysep.cli import main


class Damage:
    """Ways to spoil a file, drawn from a seed."""

    ODD_VALUES = (None, True, -1, 0, 10**30, 1e308, -0.5, "", "x", "../../etc/passwd", [], [[]], {}, {"a": 1}, "1e999")
    ODD_TEXTS = (",", ",,", '"', "'", "\n", "\r\n", "\x00", ";", "\t", "é", "1e999", "NaN", "-inf", "=1+1", "0x10", " ")

    def __init__(self, seed):
        self.random = random.Random(seed)

    def bytes(self, data):
        data, how = bytearray(data), self.random.randrange(4)
        for _ in range(self.random.choice([1, 1, 3, 20])):
            place = self.random.randrange(len(data) + 1)
            if how == 0:
                data[place : place + 1] = bytes([self.random.randrange(256)])
            elif how == 1:
                del data[place:]
            elif how == 2:
                data[place:place] = self.random.choice(self.ODD_TEXTS).encode()
            else:
                del data[place : place + self.random.randrange(1, 40)]
            if not data:
                break
        return bytes(data)

    def table(self, text):
        """A CSV file whose lines and cells are spoiled, rather than its bytes."""
        lines = [line.split(",") for line in text.splitlines()[: self.random.choice([1, 2, 3, 5, 40, 60])]]
        for _ in range(self.random.choice([1, 2, 5])):
            row = self.random.randrange(len(lines))
            column = self.random.randrange(len(lines[row]))
            how = self.random.randrange(5)
            if how == 0:
                lines[row][column] = self.random.choice(self.ODD_TEXTS)
            elif how == 1:
                lines[row].insert(column, self.random.choice(self.ODD_TEXTS))
            elif how == 2 and len(lines[row]) > 1:
                del lines[row][column]
            elif how == 3:
                value = self.random.choice(["", "x", "5", "1e308", "-1e308", "2020-01-01"])
                for line in lines[1:]:
                    line[min(column, len(line) - 1)] = value
            else:
                lines[row][column] = lines[row][self.random.randrange(len(lines[row]))]
        return "\n".join(",".join(line) for line in lines).encode()

    def description(self, data):
        """A description that is still JSON, with something in it that should not be there, or missing."""
        data = json.loads(data)
        for _ in range(self.random.choice([1, 1, 2])):
            place = data
            while True:
                keys = list(place) if isinstance(place, dict) else list(range(len(place)))
                key = self.random.choice(keys)
                if not isinstance(place[key], dict | list) or not place[key] or self.random.random() < 0.15:
                    break
                place = place[key]
            how = self.random.randrange(3)
            if how == 0:
                del place[key]
            elif how == 1 and isinstance(place, list):
                place.append(place[key])
            else:
                place[key] = self.random.choice(self.ODD_VALUES)
            if not data:
                break
        return json.dumps(data).encode()


def refused_or_done(arguments, capsys):
    """Run a command in-process; whether it succeeded. A traceback, or an error that names a defect, fails the test."""
    try:
        code = main(list(map(str, arguments)))
    except SystemExit as stopped:
        code = stopped.code
    _, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("lysep: warning: ")]
    assert "Traceback" not in err
    assert "a defect of lysep" not in err, err
    if code == 1:
        assert len(lines) == 1, err
        assert lines[0].startswith("lysep: error: ")
    assert code in (0, 1, 2)
    return code == 0


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_two_hundred_damaged_tables(seed, wine, tmp_path, capsys):
    text = (wine / "train.csv").read_text()
    np.savez(tmp_path / "good.npz", **{name: np.arange(6.0) for name in ("a", "b")}, target=np.arange(6) % 2)
    pd.read_csv(wine / "train.csv").to_parquet(tmp_path / "good.parquet")
    good = {kind: (tmp_path / f"good.{kind}").read_bytes() for kind in ("npz", "parquet")} | {"csv": text.encode()}
    trained = 0
    for number in range(seed, seed + 20):
        damage, kind = Damage(number), ("csv", "csv", "npz", "parquet")[number % 4]
        data = damage.table(text) if number % 4 == 0 else damage.bytes(good[kind])
        path, out = tmp_path / f"bad.{kind}", tmp_path / "model"
        path.write_bytes(data)
        if refused_or_done(["train", path, "--target", "target", "--out", out, "--max-iter", 2], capsys):
            trained += 1
            assert lysep.load(out).n_iter_ in (1, 2)
        refused_or_done(["predict", wine / "model", path, "-o", tmp_path / "out.csv"], capsys)
        left = {file.name for file in tmp_path.iterdir()} - {f"good.{kind}" for kind in good} - {path.name}
        assert left <= {"model", "out.csv"} | {f"bad.{kind}" for kind in good}
    assert trained < 20  # that some are still tables is no harm


@pytest.mark.parametrize("seed", range(0, 200, 20))
def test_two_hundred_damaged_models(seed, wine, tmp_path, capsys):
    good = {file.name: file.read_bytes() for file in (wine / "model").iterdir()}
    unseen = 0
    for number in range(seed, seed + 20):
        damage, model = Damage(number), tmp_path / str(number)
        model.mkdir()
        name = ("lysep.json", "lysep.json", "lysep.json", "model.safetensors")[number % 4]
        data = damage.description(good[name]) if number % 4 < 2 else damage.bytes(good[name])
        for file, content in {**good, name: data}.items():
            (model / file).write_bytes(content)
        if number % 8 == 7:  # and again with a checksum that fits
            description = json.loads(good["lysep.json"]) | {"sha256": hashlib.sha256(data).hexdigest()}
            (model / "lysep.json").write_text(json.dumps(description))
        unseen += refused_or_done(["inspect", model], capsys)
        refused_or_done(["predict", model, wine / "test.csv", "-o", tmp_path / "out.csv"], capsys)
        refused_or_done(["export", model, tmp_path / "out.onnx"], capsys)
    assert unseen < 20  # a byte of a name, or the date, may be another without harm


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_a_hundred_odd_options(seed, wine, tmp_path, capsys):
    table = wine / "train.csv"
    odd = ["", "0", "-1", "1e9", "nan", "inf", "x", "9" * 30, "tanh", "../..", "\0", "é", "target", "--", "2x2", "0.5"]
    names = "hidden activation method max-iter batch-size refresh-every tol seed validation-fraction n-iter-no-change "
    options = [f"--{name}" for name in (names + "class-weight drop target test time-limit").split()]
    for number in range(seed, seed + 20):
        draw = random.Random(number)
        chosen = [f"{option}={draw.choice(odd)}" for option in draw.sample(options, draw.choice([1, 1, 2]))]
        early = ["--early-stopping"] * draw.randrange(2)
        command = ["train", table, "--target", "target", "--out", tmp_path / "model", "--max-iter", 2, *early, *chosen]
        if any(option.startswith("--max-iter=99") for option in chosen):
            command.append("--time-limit=0.1")
        if refused_or_done(command, capsys):
            lysep.load(tmp_path / "model")
        assert {file.name for file in tmp_path.iterdir()} <= {"model"}


def test_tensors_that_claim_to_be_huge(wine, tmp_path, capsys):
    """A header that promises more than the file holds, with a checksum that fits."""
    model = tmp_path / "model"
    model.mkdir()
    header = json.dumps(
        {"0.weight": {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 2**63 - 1]}}
    ).encode()
    data = len(header).to_bytes(8, "little") + header
    (model / "model.safetensors").write_bytes(data)
    description = json.loads((wine / "model" / "lysep.json").read_text())
    (model / "lysep.json").write_text(json.dumps(description | {"sha256": hashlib.sha256(data).hexdigest()}))
    assert not refused_or_done(["inspect", model], capsys)


def test_a_model_that_was_changed_on_purpose_is_still_only_data(wine, tmp_path, capsys):
    """Parameters may be replaced by others that fit, with a new checksum: they are numbers, and no more."""
    tensors = load_file(wine / "model" / "model.safetensors")
    model = tmp_path / "model"
    model.mkdir()
    save_file({name: tensor * 0.5 for name, tensor in tensors.items()}, model / "model.safetensors")
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    description = json.loads((wine / "model" / "lysep.json").read_text()) | {"sha256": digest}
    (model / "lysep.json").write_text(json.dumps(description))
    assert refused_or_done(["predict", model, wine / "test.csv", "-o", tmp_path / "out.csv"], capsys)
