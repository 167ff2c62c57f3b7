"""A peer of embed_speed.py as a process: sentence-transformers with one of its backends.

    python benchmarks/embed_peer.py MODEL BACKEND SEQ_LEN THREADS     (BACKEND: onnx-int8, openvino)

It reads a line of JSON, {"texts": PATH, "vectors": PATH}: embeds the JSON list of texts at the first path,
writes the vectors to the second and answers with one line. The first line says that the model is loaded.
8 bits are those that sentence-transformers documents: dynamic, for AVX-512 VNNI.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch


def load(model: str, backend: str, threads: int):
    """Return the model; exported into a temporary directory first, as the library documents it."""
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    if backend == "openvino":
        settings = {"ov_config": {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "THROUGHPUT"}}
        return SentenceTransformer(model, backend="openvino", device="cpu", model_kwargs=settings)
    import onnxruntime

    folder = Path(tempfile.mkdtemp(prefix="embed-peer-"))
    shutil.copytree(model, folder / "model")
    exported = SentenceTransformer(str(folder / "model"), backend="onnx", device="cpu")
    exported.save_pretrained(str(folder / "model"))
    export_dynamic_quantized_onnx_model(exported, "avx512_vnni", str(folder / "model"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    settings = {"file_name": "model_qint8_avx512_vnni.onnx", "session_options": options}
    return SentenceTransformer(str(folder / "model"), backend="onnx", device="cpu", model_kwargs=settings)


def main() -> int:
    directory, backend, seq_len, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # libraries print there, too
        model = load(directory, backend, int(threads))
        model.max_seq_length = int(seq_len)
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            job = json.loads(line)
            texts = json.loads(Path(job["texts"]).read_text(encoding="utf-8"))
            np.save(job["vectors"], model.encode(texts, normalize_embeddings=True))
            print("done", file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
