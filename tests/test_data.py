"""What people pass as data, and what they should not (data.py, and the checks of training.py)."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

import lysep
from lysep import Status
from small import Recorder, Samples, X, Y, network, same, values

# -- forms of data -----------------------------------------------------------------------------------------------------


class Frame:
    """What a pandas frame or series offers, as far as it matters."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return self._values

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, column):
        raise KeyError(column)  # integers are no columns


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def reversed_view(array):
    return array[::-1].copy()[::-1]


def memmap(tmp_path):
    X.numpy().tofile(tmp_path / "X")
    return np.memmap(tmp_path / "X", np.float64, "r", shape=tuple(X.shape))


A, B = X.numpy(), Y.numpy()
FORMS = {
    "arrays": (A, B),
    "lists": (X.tolist(), Y.tolist()),
    "tuples": (tuple(map(tuple, X.tolist())), tuple(Y.tolist())),
    "lists of tensors": (list(X), list(Y)),
    "lists of arrays": (list(A), list(B)),
    "part of a graph": (X.clone().requires_grad_() * 1.0, Y),
    "lists, part of a graph": (list(X.clone().requires_grad_()), Y),
    "not contiguous": (X.T.contiguous().T, torch.stack([Y, Y], 1)[:, 0]),
    "frames": (Frame(A), Frame(B)),
    "read only": (read_only(A), read_only(B)),
    "reversed views": (reversed_view(A), reversed_view(B)),
    "other byte order": (A.astype(">f8"), B.astype(">i8")),
    "Fortran order": (np.asfortranarray(A), B),
    "pairs": (TensorDataset(X, Y), None),
    "subset of pairs": (Subset(TensorDataset(X.repeat(2, 1), Y.repeat(2)), list(range(40))), None),
    "pairs of arrays": (Samples(A, B), None),
    "indexable and labels": (Samples(X), Y),
    "indexable of lists": (Samples(X.tolist()), B),
    **{f"labels in {t}": (X, B.astype(t)) for t in ("int8", "uint8", "int32", "uint16", "uint32", "uint64")},
}


@pytest.mark.parametrize("options", [{}, {"batch_size": 10, "refresh_every": 2}], ids=["all", "batches"])
@pytest.mark.parametrize("form", [*FORMS.values(), memmap], ids=[*FORMS, "memmap"])
def test_the_form_of_the_data_makes_no_difference(form, options, tmp_path):
    data = (memmap(tmp_path), Y) if form is memmap else form
    model, expected = network(), network()
    lysep.fit(model, *data, sweeps=4, **options)
    lysep.fit(expected, X, Y, sweeps=4, **options)
    for ours, theirs in zip(values(model), values(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)  # the layout in memory changes rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("convert", [lambda x: x.float(), lambda x: x.double().numpy(), lambda x: (x * 9).int()])
def test_the_model_keeps_its_dtype_whatever_the_data_are_in(dtype, convert):
    model, seen = network(dtype=dtype), Recorder()
    result = lysep.fit(model, convert(X), Y, sweeps=3, callbacks=[seen], validation=(convert(X), Y))
    assert result.status is Status.COMPLETED
    state = seen.seen[-1].state
    for tensor in [*model.parameters(), state.inputs, *state.aux, *values(state)]:
        assert tensor.dtype == dtype


@pytest.mark.parametrize("pairs", [True, False])
def test_of_a_dataset_only_the_batch_is_loaded(pairs):
    samples, loaded = Samples(X, Y if pairs else None), []
    options = {"sweeps": 6, "batch_size": 5, "refresh_every": 2}
    callbacks = [lambda progress: loaded.append(len(samples.loaded))]
    lysep.fit(network(), samples, None if pairs else Y, callbacks=callbacks, **options)
    assert loaded == [6, 6, 11, 11, 16, 16]  # the first sample once more, for its shape
    for start in (1, 6, 11):
        assert len(set(samples.loaded[start : start + 5])) == 5


# -- bad input ---------------------------------------------------------------------------------------------------------


def holding(value, place=(7, 1)):
    changed = X.clone()
    changed[place] = value
    return changed


def labels(value, dtype=torch.long):
    changed = Y.clone().to(dtype)
    changed[3] = value
    return changed


ONE_HOT, COUNT, POSITIVE = F.one_hot(Y), "must be a positive integer", "must be a positive number"
RAGGED, TRIPLES = [[1.0, 2.0], [0.0]] * 20, TensorDataset(X, Y, Y)
BAD = {
    # id: (what is passed instead, words of the message)
    "NaN": ({"X": holding(math.nan)}, "X holds nan", "sample 7", "drop or impute"),
    "infinity": ({"X": holding(-math.inf)}, "X holds -inf", "sample 7", "drop or impute"),
    "too large for float32": ({"X": holding(1e300), "model": network(dtype=torch.float32)}, "X holds", "float32"),
    "NaN beyond the first batch": ({"X": holding(math.nan), "batch_size": 1}, "X holds nan", "sample 7"),
    "NaN in a list": ({"X": holding(math.nan).tolist()}, "X holds nan", "sample 7"),
    "NaN in a dataset": ({"X": Samples(holding(math.nan), Y), "y": None, "batch_size": 40}, "X holds nan", "sample 7"),
    "label too large": ({"y": labels(2)}, "y holds label 2", "2 outputs", "0 … 1"),
    "negative label": ({"y": labels(-1)}, "y holds label -1", "0 … 1"),
    "float labels": ({"y": Y.double()}, "y holds torch.float64", "integers", "y.long()"),
    "bool labels": ({"y": Y.bool().numpy()}, "y holds torch.bool", "y.astype(int)"),
    "one-hot": ({"y": ONE_HOT}, "y has shape (40, 2)", "y.argmax(1)"),
    "column": ({"y": Y.numpy()[:, None]}, "y has shape (40, 1)", "y.ravel()"),
    "string labels": ({"y": ["a", "b"] * 20}, "y is not an array of numbers"),
    "float labels of a dataset": ({"X": TensorDataset(X, Y + 0.5), "y": None}, "y holds", "integers"),
    "string labels of a dataset": ({"X": Samples(X, ["a", "b"] * 20), "y": None}, "y is not an array of numbers"),
    "labels None of a dataset": ({"X": Samples(X, [None] * 40), "y": None}, "y is not an array of numbers"),
    "one-hot of a dataset": ({"X": TensorDataset(X, ONE_HOT), "y": None}, "y ", "argmax"),
    "one class": ({"y": Y * 0 + 1}, "y holds one class only (1)", "at least two"),
    "too few labels": ({"y": Y[:-1]}, "X has 40 samples, but y has 39 labels"),
    "too few labels of a dataset": ({"X": Samples(X), "y": Y[:-1]}, "X has 40 samples, but y has 39 labels"),
    "y missing": ({"y": None}, "y is missing", "integers 0 … classes−1"),
    "y missing, array": ({"X": X.numpy(), "y": None}, "y is missing"),
    "no pairs": ({"X": Samples(X), "y": None}, "y is missing and X[0] is a Tensor", "Pass y"),
    "triples": ({"X": TRIPLES, "y": None}, "X[0] is a tuple, not a (features, label) pair"),
    "empty": ({"X": X[:0], "y": Y[:0]}, "X is empty"),
    "empty dataset": ({"X": Samples(X[:0], Y), "y": None}, "X is empty"),
    "1-D": ({"X": X[:, 0]}, "X has shape (40,)", "one row a sample"),
    "0-D": ({"X": 3.0}, "X has shape ()", "one row a sample"),
    "features do not fit": ({"X": torch.rand(40, 3)}, "module 0 (Linear", "takes 2 features, but gets 3"),
    "images": ({"X": torch.rand(40, 1, 2, 1)}, "module 0 (Linear", "Put nn.Flatten() in front"),
    "complex": ({"X": X.to(torch.complex128)}, "X is complex (torch.complex128)", "real"),
    "complex dataset": ({"X": TensorDataset(X.to(torch.complex128), Y), "y": None}, "complex", "real"),
    "sparse": ({"X": X.to_sparse()}, "X is sparse", "to_dense()"),
    "sparse, of SciPy": ({"X": csr_array(X.numpy())}, "X is sparse", "toarray()"),
    "strings": ({"X": [["a", "b"]] * 40}, "X is not an array of numbers"),
    "a string": ({"X": "a" * 40}, "X is a str, not an array of numbers or a dataset"),
    "None": ({"X": None}, "X is missing"),
    "ragged": ({"X": RAGGED}, "X is not an array of numbers"),
    "ragged dataset": ({"X": Samples(RAGGED, Y), "y": None}, "shape (2,)", "shape (1,)"),
    **{f"sweeps={v!r}": ({"sweeps": v}, f"sweeps={v!r} {COUNT}") for v in (0, -1, 1.5, True, "3", None)},
    **{f"batch_size={v!r}": ({"batch_size": v}, f"batch_size={v!r} {COUNT}") for v in (0, -1, 2.0, False, "3")},
    "batch_size=41": ({"batch_size": 41}, "batch_size=41 is larger than the data (40 samples)", "at most 40, or None"),
    **{f"refresh_every={v!r}": ({"refresh_every": v}, f"refresh_every={v!r} {COUNT}") for v in (0, 0.5)},
    **{f"time_limit={v!r}": ({"time_limit": v}, f"time_limit={v!r} {POSITIVE}") for v in (0, -1.0, math.nan, "5")},
    **{f"tolerance={v!r}": ({"tolerance": v}, f"tolerance={v!r} must be") for v in (-1e-3, math.nan, "5")},
    **{f"seed={v!r}": ({"seed": v}, f"seed={v!r} must be") for v in (0.5, "a", None, True, -1, 2**70)},
    "unknown method": ({"method": "newton"}, "method='newton' is unknown", "'paper'", "lysep.Paper()"),
    "no method": ({"method": 3}, "method=3 is neither a name nor an instance of a lysep.Method"),
    "a class": ({"method": lysep.Paper}, "method=", "Paper()"),
    "callbacks is one": ({"callbacks": print}, "callbacks"),
    "no callback": ({"callbacks": [print, 3]}, "callbacks", "3"),
    "validation is X": ({"validation": X}, "validation must be a pair (X, y), but is a Tensor"),
    "validation is of four": ({"validation": (X, Y, Y, Y)}, "validation must be a pair (X, y)"),
    "validation of other shape": ({"validation": (torch.rand(5, 3), Y[:5])}, "validation: ", "(3,)", "(2,)"),
    "validation with NaN": ({"validation": (holding(math.nan), Y)}, "validation: X holds nan", "sample 7"),
    "validation label": ({"validation": (X, labels(2))}, "validation: y holds label 2"),
    "validation without labels": ({"validation": (X, None)}, "validation: y is missing"),
}


@pytest.mark.parametrize(("passed", "words"), [(row[0], row[1:]) for row in BAD.values()], ids=BAD)
def test_bad_input_is_named_before_anything_happens(passed, words):
    arguments = {"model": network(), "X": X, "y": Y, "sweeps": 2} | passed
    before = values(arguments["model"])
    with pytest.raises(ValueError, match=re.escape(words[0])) as caught:
        lysep.fit(**arguments)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert same(values(arguments["model"]), before)


def test_all_features_that_are_not_finite_are_counted():
    many = torch.zeros(70_000, 2)
    many[[5, 69_999]] = math.nan
    with pytest.raises(ValueError, match=r"sample 5, and 4 such values in all"):
        lysep.fit(network(), many, torch.arange(70_000) % 2)
