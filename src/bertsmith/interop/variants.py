"""The forms in which a model is exported: how each is written, and which program computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import onnx

from bertsmith.errors import InputError
from bertsmith.interop.exported import Run, onnxruntime_run, openvino_run


@dataclass(frozen=True)
class Variant:
    """A form of an exported model.

    Attributes:
        name: as on the command line.
        file: of its graph, in the directory; where sentence-transformers and transformers.js look for it.
        program: the package that computes it.
        extra: of this package, which installs the program.
        write: from the file of the float32 graph to this one.
        run: how it is computed.
    """

    name: str
    file: str
    program: str
    extra: str
    write: Callable[[Path, Path], None]
    run: Callable[[Path], Run]

    def require_program(self) -> None:
        """Refuse a variant that could not be computed.

        Raises:
            InputError: its program is not installed.
        """
        if find_spec(self.program) is None:
            raise InputError(
                f"--variants {self.name} needs {self.program}: pip install 'bertsmith[{self.extra}]'"
            )


def _keep(source: Path, target: Path) -> None:
    assert source == target, "the float32 graph is there already"


def _quantize(source: Path, target: Path) -> None:
    """Write int8 weights, one scale an output; activations are quantised when it runs.

    Products of two activations (attention) stay float32, and so do embeddings.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(source, target, skip_optimization=True, skip_symbolic_shape=True)
    quantize_dynamic(
        target,
        target,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        extra_options={"MatMulConstBOnly": True},
    )


def _to_openvino(source: Path, target: Path) -> None:
    """Write OpenVINO's form, which says that it is to be computed in bfloat16."""
    import openvino

    model = openvino.Core().read_model(source)
    model.set_rt_info("bf16", ["runtime_options", "INFERENCE_PRECISION_HINT"])
    openvino.save_model(model, target, compress_to_fp16=False)


_FLOAT32 = "onnx/model.onnx"
VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("fp32", _FLOAT32, "onnxruntime", "onnx", _keep, onnxruntime_run),
        Variant("int8", "onnx/model_int8.onnx", "onnxruntime", "onnx", _quantize, onnxruntime_run),
        Variant("bf16", "openvino/openvino_model.xml", "openvino", "openvino", _to_openvino, openvino_run),
    )
}


def write_variant(variant: Variant, graph: onnx.ModelProto, directory: Path) -> Path:
    """Write a variant.

    Args:
        variant: which.
        graph: the model, float32.
        directory: of the export.

    Returns:
        The file of its graph.
    """
    source, target = directory / _FLOAT32, directory / variant.file
    for path in (source, target):
        path.parent.mkdir(exist_ok=True)
    if not source.exists():
        onnx.save(graph, source)
    variant.write(source, target)
    return target
