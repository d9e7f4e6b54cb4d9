"""Tables from files: CSV, Parquet and NPZ, with errors that name the column and the fix."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lysep import atomic
from lysep.labels import Floats
from lysep.parameters import did_you_mean
from lysep.preprocessing import check_names

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from lysep.estimator import LySepClassifier

_MOST_COLUMNS = 2**16


def read_table(path: str | PathLike[str], texts: Iterable[str] = ()) -> DataFrame:
    """The table in a file, read by what its name ends with: .csv, .tsv, .parquet or .npz.

    Of a CSV file the first line holds the names of the columns; a first column without a name is a row index and left
    out. Columns named in `texts` are read as text ("001" stays "001"). Of an NPZ file every array of one axis is a
    column, and one of two axes is as many columns, called `name.0`, `name.1` and so on.
    """
    file = Path(path)
    kinds = [kind for kind in _READERS if file.name.lower().endswith(kind)]
    if not kinds:
        raise ValueError(f"{file} is of no kind that can be read: its name must end with {', '.join(_READERS)}.")
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist." if not file.exists() else f"{file} is not a file.")
    _need_pandas()
    try:
        table = _READERS[kinds[0]](file, set(texts))
    except OSError:
        raise
    except Exception as error:  # pandas, PyArrow, zipfile and NumPy each have their own
        raise ValueError(f"{file} cannot be read as {kinds[0][1:].upper()}: {error}") from error
    if not len(table) or not len(table.columns):
        raise ValueError(f"{file} holds no {'rows' if len(table.columns) else 'columns'}.")
    return table


def read_samples(
    path: str | PathLike[str], target: str, drop: Sequence[str] = (), texts: Iterable[str] = ()
) -> tuple[DataFrame, Series[Any]]:
    """The features and the labels in a file: all its columns but those to drop, and the target."""
    return take_column(without(read_table(path, texts), drop), target)


def samples_for(
    classifier: LySepClassifier, path: str | PathLike[str], drop: Sequence[str] = (), target: str | None = None
) -> tuple[DataFrame | Floats, Series[Any]]:
    """The features and the labels in a file for a trained classifier; without `target`, by the name it had then."""
    target = target or classifier.target_name_
    if target is None:
        raise ValueError("the model does not say what its target was called. Pass the name of the column: --target.")
    texts = [target] * (classifier.classes_.dtype.kind in "OU")
    X, y = read_samples(path, target, drop, [*texts, *_text_columns(classifier)])
    return _for_model(classifier, X), y


def features_for(
    classifier: LySepClassifier, path: str | PathLike[str], drop: Sequence[str] = ()
) -> DataFrame | Floats:
    """The features in a file for a trained classifier; a target in it is left out."""
    table = without(read_table(path, _text_columns(classifier)), drop)
    target = classifier.target_name_
    return _for_model(classifier, table.drop(columns=[target]) if target in table.columns else table)


def predictions(classifier: LySepClassifier, X: DataFrame | Floats) -> DataFrame:
    """A row a sample: the predicted class, and the probability of each."""
    import pandas as pd

    probabilities = classifier.predict_proba(X)
    columns = {f"probability of {name}": probabilities[:, place] for place, name in enumerate(classifier.classes_)}
    return pd.DataFrame({"prediction": classifier.classes_[probabilities.argmax(1)], **columns})


def write_csv(table: DataFrame, path: str | PathLike[str]) -> None:
    """Whole or not at all."""
    with atomic.new_file(Path(path).resolve()) as draft:
        table.to_csv(draft, index=False)


def take_column(table: DataFrame, name: str) -> tuple[DataFrame, Series[Any]]:
    """The table without the column, and the column, which must be complete: that of the labels."""
    rest, column = without(table, [name]), table[name]
    if not len(rest.columns):
        raise ValueError(f"the table has no column but {name!r}.")
    missing = column.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"column {name!r} has {int(missing.sum())} missing values, the first in row {int(missing.argmax()) + 1}. "
            "Every sample needs its class: drop those rows."
        )
    return rest, column if column.dtype.kind in "biuf" else column.astype(str)


def without(table: DataFrame, names: Sequence[str]) -> DataFrame:
    for name in names:
        if name not in table.columns:
            known = [str(column) for column in table.columns]
            hint = did_you_mean(name, known) or f" The columns are {', '.join(map(repr, known[:20]))}."
            raise ValueError(f"there is no column {name!r}.{hint}")
    return table.drop(columns=list(names))


def _text_columns(classifier: LySepClassifier) -> list[str]:
    return classifier.encoder_.text_columns if classifier.preprocessing is not None else []


def _for_model(classifier: LySepClassifier, table: DataFrame) -> DataFrame | Floats:
    """A classifier that was trained on arrays takes the columns as they come."""
    if classifier.preprocessing is not None or hasattr(classifier, "feature_names_in_"):
        return table
    return table.to_numpy()


def _read_csv(file: Path, texts: set[str], separator: str = ",") -> DataFrame:
    import pandas as pd

    with file.open(newline="", encoding="utf-8-sig") as lines:
        names = next(csv.reader(lines, delimiter=separator), [])
    if not names:
        raise ValueError("it is empty.")
    if len(names) > _MOST_COLUMNS:
        raise ValueError(f"it has {len(names)} columns.")
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:  # pandas would rename them
        raise ValueError(f"it has more than one column named {twice[0]!r}. Rename or drop them.")
    blank = [place for place, name in enumerate(names) if not name.strip()]
    if blank and blank != [0]:
        raise ValueError(f"column {blank[-1] + 1} has no name in the first line.")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the first
        table: DataFrame = pd.read_csv(
            file,
            sep=separator,
            index_col=False,
            low_memory=False,
            encoding="utf-8-sig",
            dtype=dict.fromkeys(texts & set(names), str),
        )
    return table.iloc[:, 1:] if blank else table


def _read_tsv(file: Path, texts: set[str]) -> DataFrame:
    return _read_csv(file, texts, "\t")


def _read_parquet(file: Path, texts: set[str]) -> DataFrame:
    import pandas as pd

    table = pd.read_parquet(file)
    check_names(table)
    return table


def _read_npz(file: Path, texts: set[str]) -> DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {}
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        for name in arrays.files:
            array = arrays[name]
            if array.ndim == 1:
                columns[name] = array
            elif array.ndim == 2 and array.shape[1] <= _MOST_COLUMNS:
                columns |= {f"{name}.{place}": array[:, place] for place in range(array.shape[1])}
            else:
                raise ValueError(
                    f"array {name!r} has shape {array.shape}, but a table has one or two axes. Images are trained in "
                    "Python: lysep.LySepClassifier(network=...)."
                )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        short, long = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise ValueError(f"its arrays differ in length: {short!r} has {lengths[short]} rows, {long!r} {lengths[long]}.")
    table = pd.DataFrame(columns)
    check_names(table)
    return table


_READERS: dict[str, Callable[[Path, set[str]], DataFrame]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}


def _need_pandas() -> None:
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise ImportError("tables need pandas: pip install 'lysep[tables]'") from error
