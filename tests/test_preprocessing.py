"""Tables: what is learnt of them, what comes out, and what is said of those that cannot be used."""

import datetime
import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from lysep.preprocessing import TableEncoder
from lysep.tables import read_samples, read_table, take_column, without

TABLE = pd.DataFrame(
    {
        "age": [20.0, np.nan, 40.0, 31.0, 22.0, 50.0],
        "town": ["Bonn", "Graz", None, "Bonn", "Graz", "Oslo"],
        "member": [True, False, True, True, False, True],
        "constant": 7,
    }
)


def test_it_is_what_scikit_learn_makes_of_the_same_table():
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    reference = make_column_transformer(
        (numbers, ["age"]), (OneHotEncoder(sparse_output=False), ["town"]), (StandardScaler(), ["member"])
    ).fit_transform(TABLE)
    encoder = TableEncoder().fit(TABLE)
    ours = pd.DataFrame(encoder.transform(TABLE), columns=encoder.features)
    theirs = ["age", "town=Bonn", "town=Graz", "town=Oslo", "town is missing", "member"]
    np.testing.assert_allclose(ours[theirs].to_numpy(), reference, atol=1e-12)
    assert set(encoder.features) - set(theirs) == {"age is missing"}
    np.testing.assert_array_equal(ours["age is missing"], TABLE["age"].isna())


numbers = st.one_of(st.floats(-1e300, 1e300), st.integers(-(2**60), 2**60), st.none())


@given(st.lists(st.tuples(numbers, st.sampled_from(["a", "b", "", "é", None])), min_size=2, max_size=12))
def test_standardized_numbers_have_mean_zero_and_deviation_one(rows):
    table = pd.DataFrame(rows, columns=["x", "t"]).assign(other=range(len(rows)))
    table["x"] = table["x"].astype(float)
    encoder = TableEncoder().fit(table)
    features = pd.DataFrame(encoder.transform(table), columns=encoder.features)
    assert np.isfinite(features.to_numpy()).all()
    if "x" in features:
        assert features["x"].mean() == pytest.approx(0.0, abs=1e-6)
        assert features["x"].std(ddof=0) == pytest.approx(1.0, rel=1e-6)
    again = TableEncoder.from_dict(encoder.to_dict())
    np.testing.assert_array_equal(again.transform(table), features)
    assert again.features == encoder.features


@given(st.lists(st.tuples(st.floats(-9, 9) | st.none(), st.integers(1, 4)), min_size=2, max_size=10))
def test_a_weighted_row_is_a_repeated_one(rows):
    table = pd.DataFrame({"x": [row[0] for row in rows], "other": range(len(rows))}, dtype=float)
    weights = np.array([row[1] for row in rows])
    weighted = TableEncoder().fit(table, weights.astype(float))
    repeated = TableEncoder().fit(table.iloc[np.arange(len(rows)).repeat(weights)])
    np.testing.assert_allclose(weighted.transform(table), repeated.transform(table), rtol=1e-9, atol=1e-9)


def test_order_of_columns_and_values_never_seen():
    encoder = TableEncoder().fit(TABLE)
    new = TABLE.iloc[:1].assign(town="Rome")
    assert encoder.transform(new[["town", "constant", "age", "member"]])[0].tolist() == pytest.approx(
        [*encoder.transform(TABLE)[0, :2], 0.0, 0.0, 0.0, 0.0, encoder.transform(TABLE)[0, -1]]
    )


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, None, 3, 4], dtype="Int64"),
        pd.Series([True, None, False, True], dtype=object),
        pd.Series([True, None, False, True], dtype="boolean"),
        pd.Series([1.5, None, 2, 3], dtype="float32"),
        pd.Series([1, None, 2.5, 3], dtype=object),
    ],
)
def test_numbers_in_every_dress(column):
    table = pd.DataFrame({"x": column})
    encoder = TableEncoder().fit(table)
    assert encoder.features == ["x", "x is missing"]
    expected = [np.nan if pd.isna(value) else float(value) for value in column]
    filled = np.where(np.isnan(expected), np.nanmedian(expected), expected)
    np.testing.assert_allclose(encoder.transform(table)[:, 0], (filled - filled.mean()) / filled.std(), rtol=1e-6)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([f"name {i}" for i in range(30)], "column 'x' holds 30 different texts in 30 rows"),
        ([f"v{i % 101}" for i in range(400)], "column 'x' holds 101 different texts"),
        (pd.date_range("2020-01-01", periods=4), "column 'x' holds dates or times"),
        (["2020-01-01", "2021-05-06"] * 2, "column 'x' holds dates or times"),
        ([datetime.date(2020, 1, i) for i in range(1, 5)], "column 'x' holds dates or times"),
        ([1.0, 2.0, np.inf, 3.0], "column 'x' holds inf in row 3"),
        ([1j, 2.0, 3.0, 4.0], "column 'x' holds complex values"),
        ([5, 5, 5, 5], "no column tells the rows apart"),
        ([None, None, None, None], "no column tells the rows apart"),
        (["a", "a", "a", "a"], "no column tells the rows apart"),
    ],
)
def test_hopeless_columns_are_refused_by_name(column, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder().fit(pd.DataFrame({"x": column}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="age"), "the table lacks 'age'"),
        (lambda t: t.assign(new=1, other=2), "the table also has 'new', 'other'"),
        (lambda t: t.rename(columns={"age": "Age"}), "lacks 'age' and also has 'Age'"),
        (lambda t: t.assign(age="old"), "column 'age' must hold numbers, as in training: .*'old'"),
        (lambda t: t.iloc[:0], "no rows"),
        (lambda t: t.set_axis(["age", "town", "member", 4], axis=1), "column 4 has a name that is not a text"),
        (lambda t: t.set_axis(["age", "town", "age", "constant"], axis=1), "more than one column named 'age'"),
        (lambda t: t.assign(age=1e308, member=True).assign(age=[1e308] * 6), "too far out|must"),
    ],
)
def test_other_tables_are_refused_by_name(change, message):
    encoder = TableEncoder().fit(TABLE.assign(age=TABLE.age * 1e-3))
    with pytest.raises(ValueError, match=message):
        encoder.transform(change(TABLE))


def as_csv(text, tmp_path, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_the_kinds_of_files(tmp_path):
    plain = TABLE.drop(columns="town")
    plain.to_csv(tmp_path / "a.csv", index=False)
    plain.to_csv(tmp_path / "index.csv")
    plain.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    plain.to_parquet(tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **{name: plain[name].to_numpy() for name in plain})
    for name in ("a.csv", "index.csv", "a.tsv", "a.parquet", "a.npz"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name), plain)
    np.savez(tmp_path / "two.npz", X=np.eye(3), y=np.arange(3))
    assert read_table(tmp_path / "two.npz").columns.tolist() == ["X.0", "X.1", "X.2", "y"]


def test_text_stays_text(tmp_path):
    path = as_csv("code,y\n001,a\n002,b\n", tmp_path)
    assert read_table(path).code.tolist() == [1, 2]
    assert read_table(path, texts=["code"]).code.tolist() == ["001", "002"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert read_table(as_csv("a,b\n1,2\n", tmp_path, encoding="utf-8-sig")).columns.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as CSV: it is empty"),
        ("a,b\n", "holds no rows"),
        ("a,b,a\n1,2,3\n", "more than one column named 'a'"),
        ("a,,c\n1,2,3\n", "column 2 has no name"),
        ("a,b\n1,2,3\n", "cannot be read as CSV"),
        ("a,b\n1,2\n1,2,3\n", "cannot be read as CSV"),
        ('a,b\n"1,2\n', "cannot be read as CSV"),
    ],
)
def test_odd_csv_files(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_table(as_csv(text, tmp_path))


def test_files_that_are_not_what_their_name_says(tmp_path):
    (tmp_path / "latin.csv").write_bytes("a,b\nü,1\n".encode("latin-1"))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 torn")
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "images.npz", x=np.zeros((2, 3, 4)))
    np.savez(tmp_path / "lengths.npz", x=np.zeros(2), y=np.zeros(3))
    with gzip.open(tmp_path / "a.csv.gz", "w") as file:
        file.write(b"a,b\n1,2\n")
    for name, message in [
        ("latin.csv", "cannot be read as CSV"),
        ("a.parquet", "cannot be read as PARQUET"),
        ("a.npz", "cannot be read as NPZ"),
        ("pickle.npz", "cannot be read as NPZ: .*allow_pickle=False"),
        ("images.npz", r"array 'x' has shape \(2, 3, 4\)"),
        ("lengths.npz", "differ in length: 'x' has 2 rows, 'y' 3"),
        ("a.csv.gz", "its name must end with .csv, .tsv, .parquet, .npz"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"none.csv does not exist"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(FileNotFoundError, match="is not a file"):
        read_table(tmp_path / "folder.csv")


def test_the_target(tmp_path):
    X, y = read_samples(as_csv("a,b,species\n1,2,x\n3,4,y\n", tmp_path), "species", drop=["b"])
    assert X.columns.tolist() == ["a"]
    assert y.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match=r"there is no column 'specis'\. Did you mean 'species'\?"):
        read_samples(as_csv("a,species\n1,x\n", tmp_path), "specis")
    with pytest.raises(ValueError, match=r"there is no column 'z'\. The columns are 'a', 'b'"):
        without(pd.DataFrame({"a": [1], "b": [2]}), ["z"])
    with pytest.raises(ValueError, match="column 'town' has 1 missing values, the first in row 3"):
        take_column(TABLE, "town")
    with pytest.raises(ValueError, match="no column but 'a'"):
        take_column(pd.DataFrame({"a": [1, 2]}), "a")
