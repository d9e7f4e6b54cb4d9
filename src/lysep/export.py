"""A trained classifier as an ONNX file, drawn from its architecture: features (or a numeric table) to probabilities."""

from __future__ import annotations

import json
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

_OPSET = 20  # ai.onnx of 2023, the first with Gelu
_IR_VERSION = 9  # that of the same release, so that runtimes of then read it


def export_onnx(classifier: LySepClassifier, path: str | PathLike[str]) -> str:
    """Write an ONNX file with one input, `X`, and one output, `probabilities`, and say in words what X is.

    Classes, columns and features stand in the file's metadata. The network is computed in float32. What standardizes a
    table of numbers, and fills its gaps, is part of the file; texts cannot be, so a model of a table with text columns
    takes the features that its `encoder_` makes.

    Needs onnx: pip install 'lysep[onnx]'.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("export to ONNX needs onnx: pip install 'lysep[onnx]'") from error
    check_is_fitted(classifier)
    model, words = _Drawing().finish(classifier)
    onnx.checker.check_model(model, full_check=True)
    with atomic.new_file(Path(path).resolve()) as draft:
        draft.write_bytes(model.SerializeToString())
    return words


class _Drawing:
    """Nodes and constants of a graph in the making; `value` is the name of what the last node gave."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.value = "X"
        self.sample = torch.empty(0)  # as it arrives at the next module, for its shape

    def finish(self, classifier: LySepClassifier) -> tuple[ModelProto, str]:
        from onnx import TensorProto, helper

        encoder = getattr(classifier, "encoder_", None)
        kind, shape, words = TensorProto.FLOAT, classifier.sample_shape_, "X: the features, in float32"
        if encoder is not None and not encoder.text_columns:
            columns = [column.name for column in encoder.columns]
            kind, shape = TensorProto.DOUBLE, (len(columns),)
            words = f"X: the table's columns in float64, NaN where a value is missing: {', '.join(columns)}"
            self._add_table(encoder)
        elif encoder is not None:
            words = (
                f"the text columns ({', '.join(encoder.text_columns)}) cannot be encoded within an ONNX file. "
                "X: the encoded features, in float32; in Python, lysep.load(model).encoder_.transform(table)"
            )
        elif hasattr(classifier, "feature_names_in_"):
            words += f": {', '.join(map(str, classifier.feature_names_in_))}"
        kind_of = next(classifier.model_.parameters())
        self.sample = kind_of.new_zeros(1, *classifier.sample_shape_)
        for module in leaves(classifier.model_):
            _DRAWN[type(module)](self, module)
            with torch.no_grad():
                self.sample = module(self.sample)
        self.node("Softmax", [], output="probabilities", axis=1)
        graph = helper.make_graph(
            self.nodes,
            "lysep",
            [helper.make_tensor_value_info("X", kind, ["samples", *shape])],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["samples", len(classifier.classes_)])],
            self.constants,
        )
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="lysep", ir_version=_IR_VERSION)
        meaning = {"classes": classifier.classes_.tolist()}
        if encoder is not None:
            meaning |= {"columns": [column.name for column in encoder.columns], "features": encoder.features}
        helper.set_model_props(model, {name: json.dumps(value, default=str) for name, value in meaning.items()})
        return model, words

    def node(self, kind: str, others: list[str], *, value: str | None = None, output: str = "", **options: Any) -> str:
        """A node on the present value (or the one given) and others; what it gives becomes the present one."""
        from onnx import helper

        name = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [value or self.value, *others], [name], **options))
        self.value = name
        return name

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype=dtype), name))
        return name

    def _add_table(self, encoder: TableEncoder) -> None:
        """As `NumberColumn.encode`, in float64, for all columns at once; then in the order of the features."""
        columns = [column for column in encoder.columns if isinstance(column, NumberColumn)]
        scales = np.array([column.scale or 1.0 for column in columns])
        means, fills = (np.array([getattr(column, name) for column in columns]) for name in ("mean", "fill"))
        missing = self.node("IsNaN", [])
        self.node("Where", [self.constant(fills, np.float64), "X"])
        self.node("Div", [self.constant(scales, np.float64)])
        numbers = self.node("Sub", [self.constant(means / scales, np.float64)])
        self.node("Cast", [], value=missing, to=_type("DOUBLE"))
        self.node("Concat", [self.value], value=numbers, axis=1)
        places = [
            place + offset
            for place, column in enumerate(columns)
            for offset in [0] * (column.scale > 0.0) + [len(columns)] * column.indicator
        ]
        self.node("Gather", [self.constant(places, np.int64)], axis=1)
        self.node("Cast", [], to=_type("FLOAT"))

    def linear(self, module: Any) -> None:
        parameters = [self.constant(p.detach().cpu().numpy()) for p in (module.weight, module.bias) if p is not None]
        self.node("Gemm", parameters, transB=1)

    def conv(self, module: Any) -> None:
        before, after = _conv_padding(module)
        parameters = [self.constant(p.detach().cpu().numpy()) for p in (module.weight, module.bias) if p is not None]
        self.node(
            "Conv",
            parameters,
            kernel_shape=list(module.kernel_size),
            strides=list(module.stride),
            dilations=list(module.dilation),
            pads=[*before, *after],
        )

    def pool(self, module: Any) -> None:
        pool = as_pool(module)
        if pool.ceil_mode or pool.divisor is not None:  # here ONNX, its runtimes and PyTorch count differently
            height, width = (pool.axis(axis, self.sample.shape[2 + axis]).numpy() for axis in (0, 1))
            sign = -1.0 if (pool.divisor or 1) < 0 else 1.0
            rows = self.node("MatMul", [self.constant(sign * width.T)])
            self.node("MatMul", [rows], value=self.constant(height))
            return
        self.node(
            "AveragePool",
            [],
            kernel_shape=pool.kernel,
            strides=pool.stride,
            pads=[*pool.padding, *pool.padding],
            count_include_pad=int(pool.count_include_pad),
        )

    def silu(self, module: Any) -> None:
        x = self.value
        self.node("Sigmoid", [])
        self.node("Mul", [x])

    def softplus(self, module: Any) -> None:
        beta = self.constant(module.beta)
        self.node("Mul", [beta])
        self.node("Softplus", [])
        self.node("Div", [beta])


def _plain(kind: str, **options: str) -> Callable[[_Drawing, nn.Module], None]:
    """A module that is one node; `options` say which of its attributes are the node's."""

    def draw(drawing: _Drawing, module: nn.Module) -> None:
        drawing.node(kind, [], **{name: getattr(module, attribute) for name, attribute in options.items()})

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
    nn.LeakyReLU: _plain("LeakyRelu", alpha="negative_slope"),
    nn.ELU: _plain("Elu", alpha="alpha"),
    nn.SiLU: _Drawing.silu,
    nn.GELU: _plain("Gelu", approximate="approximate"),
    nn.Softplus: _Drawing.softplus,
}


def _type(name: str) -> int:
    from onnx import TensorProto

    return int(getattr(TensorProto, name))


def _conv_padding(module: nn.Conv2d) -> tuple[list[int], list[int]]:
    """Zeros before and after, along both axes; where "same" needs an odd number, PyTorch puts one more after."""
    if not isinstance(module.padding, str):
        return list(module.padding), list(module.padding)
    if module.padding == "valid":
        return [0, 0], [0, 0]
    totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return [total // 2 for total in totals], [total - total // 2 for total in totals]
