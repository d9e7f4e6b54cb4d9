"""Tables to numbers: standardized, imputed, with indicators for texts. What was learnt is data, and saved as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from lysep.fields import Fields

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Floats = NDArray[np.float64]

MOST_TEXTS = 100  # so many different texts in a column, at most, become indicators
_FEW_TEXTS = 10  # so few always do, even where every row has another one


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers or truth values: (value − mean) / scale, and an indicator where values were missing.

    Missing values become `fill`, the median. The scale of a constant column is zero: it tells nothing, and is left out.
    """

    name: str
    fill: float
    mean: float
    scale: float
    indicator: bool

    @property
    def features(self) -> list[str]:
        return [self.name] * (self.scale > 0.0) + [f"{self.name} is missing"] * self.indicator

    def encode(self, column: Series[Any]) -> list[Floats]:
        values = _numbers(column)
        missing = np.isnan(values)
        encoded = []
        if self.scale > 0.0:
            with np.errstate(
                over="ignore"
            ):  # divided first, as a difference may overflow; `transform` refuses the rest
                encoded.append(np.where(missing, self.fill, values) / self.scale - self.mean / self.scale)
        if self.indicator:
            encoded.append(missing.astype(np.float64))
        return encoded


@dataclass(frozen=True)
class TextColumn:
    """A column of texts or categories: an indicator for each value seen in training, and for missing ones if there were
    any. A value never seen before sets none of them."""

    name: str
    values: tuple[str, ...]
    indicator: bool

    @property
    def features(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.values] + [f"{self.name} is missing"] * self.indicator

    def encode(self, column: Series[Any]) -> list[Floats]:
        texts, missing = _texts(column)
        encoded = [(texts == value) & ~missing for value in self.values]
        return [indicator.astype(np.float64) for indicator in [*encoded, *[missing] * self.indicator]]


Column = NumberColumn | TextColumn


class TableEncoder:
    """Turns data frames with the columns of the training table, in any order, into an array of features.

    Numbers are standardized, missing ones replaced by the median and marked by an indicator; texts and categories
    become one indicator a value; constant columns are left out. Dates, and texts with too many values, are refused.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Bonn", "Graz", "Bonn"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.features
    ['age', 'age is missing', 'town=Bonn', 'town=Graz']
    >>> encoder.transform(table).round(2).tolist()
    [[-1.22, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.22, 0.0, 1.0, 0.0]]
    """

    def __init__(self, columns: Sequence[Column] = ()) -> None:
        self.columns = list(columns)

    def fit(self, table: DataFrame, sample_weight: Floats | None = None) -> Self:
        """Learn from a table; a row of weight 2 counts as two rows."""
        check_names(table)
        weights = np.ones(len(table)) if sample_weight is None else sample_weight
        columns = [_learn(table[name], weights) for name in table.columns]
        if not any(column.features for column in columns):
            raise ValueError("no column tells the rows apart: all are constant or empty.")
        self.columns = columns
        return self

    def transform(self, table: DataFrame) -> Floats:
        check_names(table)
        known = [column.name for column in self.columns]
        missing = [name for name in known if name not in table.columns]
        strange = [name for name in table.columns if name not in known]
        if missing or strange:
            wrong = [f"lacks {_listed(missing)}"] * bool(missing) + [f"also has {_listed(strange)}"] * bool(strange)
            raise ValueError(f"the table {' and '.join(wrong)}: it must have the columns of the one trained on.")
        if not len(table):
            raise ValueError("the table has no rows.")
        encoded = [feature for column in self.columns for feature in column.encode(table[column.name])]
        features = np.stack(encoded, axis=1)
        if not np.isfinite(features).all():
            row, place = (int(i) for i in np.argwhere(~np.isfinite(features))[0])
            raise ValueError(f"column {self.features[place]!r} is too far out in row {row + 1} to be standardized.")
        return features

    @property
    def features(self) -> list[str]:
        """The names of what `transform` returns."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def text_columns(self) -> list[str]:
        return [column.name for column in self.columns if isinstance(column, TextColumn)]

    def to_dict(self) -> dict[str, Any]:
        """Everything learnt, as JSON has it."""
        kinds = {kind: name for name, kind in _KINDS.items()}
        columns = [{"kind": kinds[type(column)], **asdict(column)} for column in self.columns]
        return {
            "columns": [{k: list(v) if isinstance(v, tuple) else v for k, v in column.items()} for column in columns]
        }

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        columns = [_column(fields) for fields in Fields(data, "preprocessing").objects("columns")]
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            raise ValueError("preprocessing.columns has two columns of the same name.")
        return cls(columns)


_KINDS = {"number": NumberColumn, "text": TextColumn}


def _column(fields: Fields) -> Column:
    kind, name, indicator = fields.text("kind"), fields.text("name"), fields.truth("indicator")
    if kind == "number":
        fill, mean, scale = (fields.number(name) for name in ("fill", "mean", "scale"))
        if scale < 0.0:
            raise ValueError(f"preprocessing: the scale of column {name!r} is {scale}, but must not be negative.")
        return NumberColumn(name, fill, mean, scale, indicator)
    if kind == "text":
        return TextColumn(name, tuple(fields.texts("values")), indicator)
    raise ValueError(f"preprocessing: column {name!r} is of the unknown kind {kind!r}.")


def check_names(table: DataFrame) -> None:
    strange = [name for name in table.columns if not isinstance(name, str)]
    if strange:
        raise ValueError(
            f"column {strange[0]!r} has a name that is not a text. Use table.columns = table.columns.astype(str)."
        )
    twice = table.columns[table.columns.duplicated()].unique().tolist()
    if twice:
        raise ValueError(f"the table has more than one column named {_listed(twice)}. Rename or drop them.")


def _learn(column: Series[Any], weights: Floats) -> Column:
    return _learn_numbers(column, weights) if _is_number(column) else _learn_texts(column)


def _is_number(column: Series[Any]) -> bool:
    """By what the column holds, not by how: truth values with gaps are objects to pandas."""
    from pandas.api.types import infer_dtype

    kind = infer_dtype(column, skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float", "decimal", "boolean", "empty", "integer-na"):
        return True
    if kind in ("string", "categorical", "mixed", "mixed-integer"):
        return bool(column.isna().all())
    if kind in ("date", "datetime", "datetime64", "time", "timedelta", "timedelta64", "period", "interval"):
        raise ValueError(_NO_DATES.format(column.name))
    raise ValueError(f"column {column.name!r} holds {kind} values, which cannot be used. Drop it.")


_NO_DATES = "column {!r} holds dates or times. Turn them into numbers (days since, month, ...), or drop the column."


def _learn_numbers(column: Series[Any], weights: Floats) -> NumberColumn:
    name, values = str(column.name), _numbers(column)
    missing = np.isnan(values)
    if missing.all():
        return NumberColumn(name, 0.0, 0.0, 0.0, False)
    fill = _median(values[~missing], weights[~missing])
    filled = np.where(missing, fill, values)
    largest = float(np.abs(filled).max())
    if largest == 0.0:
        return NumberColumn(name, fill, 0.0, 0.0, bool(missing.any()))
    units = filled / largest  # so that no square over- or underflows
    mean = float(np.average(units, weights=weights))
    deviation = float(np.sqrt(np.average((units - mean) ** 2, weights=weights)))
    scale = deviation * largest
    if deviation < 1e-14 or scale < np.finfo(np.float64).tiny:
        scale = 0.0  # constant, but for rounding
    return NumberColumn(name, fill, mean * largest, scale, bool(missing.any()))


def _learn_texts(column: Series[Any]) -> TextColumn:
    texts, missing = _texts(column)
    values = sorted(set(texts[~missing].tolist()))
    if _are_dates(values):
        raise ValueError(_NO_DATES.format(column.name))
    if len(values) > MOST_TEXTS or len(values) > max(_FEW_TEXTS, len(texts) / 2):
        raise ValueError(
            f"column {column.name!r} holds {len(values)} different texts in {len(texts)} rows (such as "
            f"{values[0][:30]!r}), too many for one indicator each. Group them, or drop the column."
        )
    indicator = bool(missing.any())
    if len(values) == 1 and not indicator:
        values = []
    return TextColumn(str(column.name), tuple(values), indicator)


def _numbers(column: Series[Any]) -> Floats:
    try:
        values = column.astype(object).where(column.notna(), np.nan).astype(np.float64).to_numpy()
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {column.name!r} must hold numbers, as in training: {error}.") from error
    infinite = np.isinf(values)
    if infinite.any():
        raise ValueError(f"column {column.name!r} holds {values[infinite][0]} in row {int(infinite.argmax()) + 1}.")
    return np.asarray(values)


def _texts(column: Series[Any]) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """As text, with the places of what is missing."""
    return column.astype(object).map(str).to_numpy(dtype=object), column.isna().to_numpy(dtype=bool)


def _are_dates(values: Sequence[str]) -> bool:
    import pandas as pd

    if not values or not all(len(value) >= 8 and value[:4].isdigit() for value in values):
        return False
    return bool(pd.to_datetime(list(values), format="ISO8601", errors="coerce", utc=True).notna().all())


def _median(values: Floats, weights: Floats) -> float:
    """The median of every value repeated as often as its weight says."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    low, high = (int(np.searchsorted(below, below[-1] / 2.0, side)) for side in ("left", "right"))
    a, b = float(values[order[low]]), float(values[order[min(high, len(order) - 1)]])
    return a / 2.0 + b / 2.0


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
