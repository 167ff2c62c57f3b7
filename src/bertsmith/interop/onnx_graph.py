"""The pieces that an ONNX graph is put together from, for every version of the operators from 11 on.

An operator that a version lacks is written out in older ones: so one graph serves all versions, and what a
program can fuse again (LayerNorm, GELU, attention) is in the form it looks for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import Tensor, nn

Name = str
"""Of a value in the graph."""


class Graph:
    """A graph that grows node by node; methods take and return names of values.

    Attributes:
        opset: version of the operators.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._nodes: list[onnx.NodeProto] = []
        self._stored: dict[Name, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: Name, axes: Sequence[str]) -> Name:
        """Add an int64 input whose axes may have any length."""
        self._inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, list(axes)))
        return name

    def output(self, name: Name, value: Name, axes: Sequence[str | int]) -> None:
        """Call a value an output, float32."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(axes)))

    def add(self, operator: str, *inputs: Name, **attributes: Any) -> Name:
        """Add a node with one output."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, name: Name, values: Tensor | NDArray[np.float32]) -> Name:
        """Store a weight."""
        array = values.detach().numpy() if isinstance(values, Tensor) else values
        self._stored[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def number(self, value: float) -> Name:
        """Return a float32 number."""
        return self.weight(f"number_{value!r}", np.array(value, dtype=np.float32))

    def integers(self, *values: int) -> Name:
        """Return int64 numbers, ``(len(values),)``."""
        name = "integers_" + "_".join(map(str, values))
        self._stored[name] = numpy_helper.from_array(np.array(values, dtype=np.int64), name)
        return name

    def reshape(self, value: Name, *sizes: int) -> Name:
        """Give a value another shape; 0 keeps an axis's length, -1 is what is left."""
        return self.add("Reshape", value, self.integers(*sizes))

    def with_axis(self, value: Name, axis: int) -> Name:
        """Add an axis of length 1."""
        if self.opset < 13:
            return self.add("Unsqueeze", value, axes=[axis])
        return self.add("Unsqueeze", value, self.integers(axis))

    def reduced(self, operator: str, value: Name, axis: int) -> Name:
        """Reduce an axis to length 1."""
        if self.opset < (13 if operator == "ReduceSum" else 18):
            return self.add(operator, value, axes=[axis], keepdims=1)
        return self.add(operator, value, self.integers(axis), keepdims=1)

    def part(self, values: Name, start: int, end: int) -> Name:
        """Return a part of a list of numbers."""
        return self.add("Slice", values, self.integers(start), self.integers(end))

    def linear(self, name: Name, value: Name, layer: nn.Linear) -> Name:
        """Add a dense layer."""
        return self.projection(name, value, layer.weight, layer.bias)

    def projection(self, name: Name, value: Name, weight: Tensor, bias: Tensor) -> Name:
        """Add a dense layer with weights float32 ``(outputs, inputs)`` and ``(outputs,)``."""
        product = self.add("MatMul", value, self.weight(f"{name}.weight", weight.T))
        return self.add("Add", product, self.weight(f"{name}.bias", bias))

    def norm(self, name: Name, value: Name, norm: nn.LayerNorm) -> Name:
        """Add a LayerNorm over the last axis."""
        scale, shift = self.weight(f"{name}.weight", norm.weight), self.weight(f"{name}.bias", norm.bias)
        if self.opset >= 17:
            return self.add("LayerNormalization", value, scale, shift, axis=-1, epsilon=norm.eps)
        centered = self.add("Sub", value, self.reduced("ReduceMean", value, -1))
        variance = self.reduced("ReduceMean", self.add("Pow", centered, self.number(2.0)), -1)
        deviation = self.add("Sqrt", self.add("Add", variance, self.number(norm.eps)))
        scaled = self.add("Mul", self.add("Div", centered, deviation), scale)
        return self.add("Add", scaled, shift)

    def activation(self, kind: str, value: Name) -> Name:
        """Add one of ``model.config.ACTIVATIONS``."""
        return {"gelu": self._gelu, "gelu_tanh": self._gelu_tanh, "relu": self._relu}[kind](value)

    def _gelu(self, value: Name) -> Name:
        if self.opset >= 20:
            return self.add("Gelu", value)
        erf = self.add("Erf", self.add("Div", value, self.number(math.sqrt(2.0))))
        return self._half_of_product(value, erf)

    def _gelu_tanh(self, value: Name) -> Name:
        if self.opset >= 20:
            return self.add("Gelu", value, approximate="tanh")
        cube = self.add("Mul", self.add("Pow", value, self.number(3.0)), self.number(0.044715))
        inner = self.add("Mul", self.add("Add", value, cube), self.number(math.sqrt(2.0 / math.pi)))
        return self._half_of_product(value, self.add("Tanh", inner))

    def _half_of_product(self, value: Name, share: Name) -> Name:
        product = self.add("Mul", value, self.add("Add", share, self.number(1.0)))
        return self.add("Mul", product, self.number(0.5))

    def _relu(self, value: Name) -> Name:
        return self.add("Relu", value)

    def model(self, producer: str, version: str) -> onnx.ModelProto:
        """Return the graph as a model, looked at by ONNX's own checker."""
        graph = helper.make_graph(
            self._nodes, "bert", self._inputs, self._outputs, initializer=list(self._stored.values())
        )
        opsets = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name=producer,
            producer_version=version,
        )
        onnx.checker.check_model(made)
        return made
