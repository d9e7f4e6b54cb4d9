"""A trained classifier as an ONNX file, drawn from its architecture: features (or a numeric table) to probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from lysep import atomic
from lysep.architecture import leaves
from lysep.network import as_pool
from lysep.preprocessing import NumberColumn, TableEncoder

if TYPE_CHECKING:
    from onnx import ModelProto

    from lysep.estimator import LySepClassifier

_OPSET = 20  # ai.onnx of 2023
_IR_VERSION = 9  # that of the same release, so that runtimes of then read it


def export_onnx(classifier: LySepClassifier, path: str | PathLike[str]) -> str:
    """Write an ONNX file with one input, `X`, and one output, `probabilities`, and say in words what X is.

    Classes, columns and features stand in the file's metadata. The network is computed in its own dtype, but for what
    runtimes have in float32 only: convolutions, poolings and the error function of GELU. What standardizes a table of
    numbers, and fills its gaps, is part of the file; texts cannot be, so a model of a table with text columns takes the
    features that its `encoder_` makes.

    Needs onnx: pip install 'lysep[onnx]'.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("export to ONNX needs onnx: pip install 'lysep[onnx]'") from error
    check_is_fitted(classifier)
    model, words = _Drawing(classifier).finish()
    onnx.checker.check_model(model, full_check=True)
    with atomic.new_file(Path(path).resolve()) as draft:
        draft.write_bytes(model.SerializeToString())
    return words


class _Drawing:
    """Nodes and constants of a graph in the making; `value` is the name of what the last node gave."""

    def __init__(self, classifier: LySepClassifier) -> None:
        self.classifier = classifier
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.value = "X"
        # as it arrives at the next module, for its shape
        self.sample = next(classifier.model_.parameters()).new_zeros(1, *classifier.sample_shape_)
        self.dtype = np.dtype(str(self.sample.dtype).removeprefix("torch."))

    def finish(self) -> tuple[ModelProto, str]:
        from onnx import helper

        classifier = self.classifier
        shape, dtype, words = self._input()
        for module in leaves(classifier.model_):
            _DRAWN[type(module)](self, module)
            with torch.no_grad():
                self.sample = module(self.sample)
        self.node("Softmax", output="probabilities", axis=1)
        probabilities: list[str | int | None] = ["samples", len(classifier.classes_)]
        graph = helper.make_graph(
            self.nodes,
            "lysep",
            [helper.make_tensor_value_info("X", _type(dtype), ["samples", *shape])],
            [helper.make_tensor_value_info("probabilities", _type(self.dtype), probabilities)],
            self.constants,
        )
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="lysep", ir_version=_IR_VERSION)
        meaning = {"classes": classifier.classes_.tolist()}
        if classifier.preprocessing is not None:
            encoder = classifier.encoder_
            meaning |= {"columns": [column.name for column in encoder.columns], "features": encoder.features}
        helper.set_model_props(model, {name: json.dumps(value, default=str) for name, value in meaning.items()})
        return model, words

    def _input(self) -> tuple[tuple[int, ...], np.dtype[Any], str]:
        """Shape and type of X, and what it is in words; what turns a table into features is drawn."""
        classifier = self.classifier
        if classifier.preprocessing is None:
            names = getattr(classifier, "feature_names_in_", [])
            listed = f": {', '.join(map(str, names))}" if len(names) else ""
            return classifier.sample_shape_, self.dtype, f"X: the features, in {self.dtype}{listed}"
        encoder = classifier.encoder_
        if encoder.text_columns:
            return (
                classifier.sample_shape_,
                self.dtype,
                f"the text columns ({', '.join(encoder.text_columns)}) cannot be encoded within an ONNX file. "
                f"X: the encoded features, in {self.dtype}; in Python, lysep.load(model).encoder_.transform(table)",
            )
        self._draw_table(encoder)
        names = [column.name for column in encoder.columns]
        words = f"X: the table's columns in float64, NaN where a value is missing: {', '.join(names)}"
        return (len(names),), np.dtype(np.float64), words

    def node(self, kind: str, *others: str, value: str | None = None, output: str = "", **options: Any) -> str:
        """A node on the present value (or the one given) and others; what it gives becomes the present one."""
        from onnx import helper

        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [value or self.value, *others], [name], **options))
        self.value = name
        return name

    def constant(self, array: Any, dtype: Any = None) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        value = np.ascontiguousarray(array, dtype=dtype or self.dtype).reshape(np.shape(array))
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def cast(self, dtype: Any, value: str | None = None) -> str:
        return self.node("Cast", value=value, to=_type(np.dtype(dtype)))

    def in_float32(self, kind: str, *parameters: Any, **options: Any) -> None:
        """A node of a kind that runtimes have in float32 only."""
        self.cast(np.float32)
        self.node(kind, *(self.constant(parameter, np.float32) for parameter in parameters), **options)
        self.cast(self.dtype)

    def _draw_table(self, encoder: TableEncoder) -> None:
        """As `NumberColumn.encode`, in float64, for all columns at once; then in the order of the features."""
        columns = [column for column in encoder.columns if isinstance(column, NumberColumn)]
        scales = np.array([column.scale or 1.0 for column in columns])
        means, fills = (np.array([getattr(column, name) for column in columns]) for name in ("mean", "fill"))
        missing = self.node("IsNaN")
        self.node("Where", self.constant(fills, np.float64), "X")
        self.node("Div", self.constant(scales, np.float64))
        numbers = self.node("Sub", self.constant(means / scales, np.float64))
        self.node("Concat", self.cast(np.float64, missing), value=numbers, axis=1)
        places = [
            place + offset
            for place, column in enumerate(columns)
            for offset in [0] * (column.scale > 0.0) + [len(columns)] * column.indicator
        ]
        self.node("Gather", self.constant(places, np.int64), axis=1)
        self.cast(self.dtype)

    def linear(self, module: nn.Linear) -> None:
        self.node("Gemm", *map(self.constant, _parameters(module)), transB=1)

    def conv(self, module: nn.Conv2d) -> None:
        before, after = _conv_padding(module)
        self.in_float32(
            "Conv",
            *_parameters(module),
            kernel_shape=list(module.kernel_size),
            strides=list(module.stride),
            dilations=list(module.dilation),
            pads=[*before, *after],
        )

    def pool(self, module: nn.AvgPool2d) -> None:
        pool = as_pool(module)
        if not pool.ceil_mode and pool.divisor is None:
            self.in_float32(
                "AveragePool",
                kernel_shape=pool.kernel,
                strides=pool.stride,
                pads=[*pool.padding, *pool.padding],
                count_include_pad=int(pool.count_include_pad),
            )
            return
        # here ONNX, its runtimes and PyTorch count differently
        height, width = (pool.axis(axis, self.sample.shape[2 + axis]).numpy() for axis in (0, 1))
        sign = -1.0 if (pool.divisor or 1) < 0 else 1.0
        rows = self.node("MatMul", self.constant(sign * width.T))
        self.node("MatMul", rows, value=self.constant(height))

    def leaky_relu(self, module: nn.LeakyReLU) -> None:
        x = self.value
        below = self.node("Mul", self.constant(module.negative_slope), value=self.node("Min", self.constant(0.0)))
        self.node("Add", below, value=self.node("Relu", value=x))

    def elu(self, module: nn.ELU) -> None:
        x = self.value
        self.node("Exp", value=self.node("Min", self.constant(0.0)))
        self.node("Sub", self.constant(1.0))
        below = self.node("Mul", self.constant(module.alpha))
        self.node("Add", below, value=self.node("Relu", value=x))

    def silu(self, module: nn.SiLU) -> None:
        x = self.value
        self.node("Mul", x, value=self.node("Sigmoid"))

    def gelu(self, module: nn.GELU) -> None:
        """x Φ(x), where Φ is (1 + erf(x/√2)) / 2 or an approximation by tanh."""
        x = self.value
        if module.approximate == "none":
            self.node("Mul", self.constant(math.sqrt(0.5)))
            self.in_float32("Erf")
        else:
            cube = self.node("Mul", x, value=self.node("Mul", x))
            self.node("Mul", self.constant(0.044715), value=cube)
            self.node("Add", x)
            self.node("Mul", self.constant(math.sqrt(2.0 / math.pi)))
            self.node("Tanh")
        self.node("Add", self.constant(1.0))
        self.node("Mul", self.constant(0.5))
        self.node("Mul", x)

    def softplus(self, module: nn.Softplus) -> None:
        """(max(z, 0) + ln(1 + exp(−|z|))) / β with z = βx."""
        z = self.node("Mul", self.constant(module.beta))
        self.node("Neg", value=self.node("Abs"))
        self.node("Add", self.constant(1.0), value=self.node("Exp"))
        self.node("Add", self.node("Log"), value=self.node("Relu", value=z))
        self.node("Div", self.constant(module.beta))


def _plain(kind: str) -> Callable[[_Drawing, nn.Module], None]:
    """A module that is one node."""

    def draw(drawing: _Drawing, module: nn.Module) -> None:
        drawing.node(kind)

    return draw


_DRAWN: dict[type[nn.Module], Callable[[_Drawing, Any], None]] = {
    nn.Linear: _Drawing.linear,
    nn.Conv2d: _Drawing.conv,
    nn.AvgPool2d: _Drawing.pool,
    nn.Flatten: _plain("Flatten"),
    nn.Identity: _plain("Identity"),
    nn.Tanh: _plain("Tanh"),
    nn.Sigmoid: _plain("Sigmoid"),
    nn.ReLU: _plain("Relu"),
    nn.LeakyReLU: _Drawing.leaky_relu,
    nn.ELU: _Drawing.elu,
    nn.SiLU: _Drawing.silu,
    nn.GELU: _Drawing.gelu,
    nn.Softplus: _Drawing.softplus,
}


def _type(dtype: np.dtype[Any]) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _parameters(module: nn.Module) -> list[Any]:
    return [parameter.detach().cpu().numpy() for parameter in module.parameters()]


def _conv_padding(module: nn.Conv2d) -> tuple[list[int], list[int]]:
    """Zeros before and after, along both axes; where "same" needs an odd number, PyTorch puts one more after."""
    if not isinstance(module.padding, str):
        return list(module.padding), list(module.padding)
    if module.padding == "valid":
        return [0, 0], [0, 0]
    totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return [total // 2 for total in totals], [total - total // 2 for total in totals]
