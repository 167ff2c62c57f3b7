"""Write a checkpoint with the original's own code in real TensorFlow, and what its model computes.

Run by a Python that has tensorflow and bert-tensorflow (google-research/bert as a package):

    python original_bert.py OUT [LAYERS HIDDEN]

writes OUT/bert_model.ckpt.* (pretrained), OUT/squad/model.ckpt-1.* (with a head for questions instead),
OUT/bert_config.json and OUT/outputs.npz. The package was written for
TensorFlow 1; three functions of it that TensorFlow 2 has no more are put in its place here.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import tensorflow

tf = tensorflow.compat.v1
tf.disable_eager_execution()


def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
    """What tf.contrib.layers.layer_norm does to the last axis; it adds 1e-12 to the variance."""
    assert begin_norm_axis == begin_params_axis == -1
    with tf.variable_scope(scope, "LayerNorm"):
        width = [inputs.shape[-1]]
        beta = tf.get_variable("beta", width, initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", width, initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)


def dense(inputs, units, activation=None, kernel_initializer=None, name=None):
    """What tf.layers.dense does."""
    with tf.variable_scope(name or "dense"):
        kernel = tf.get_variable("kernel", [inputs.shape[-1], units], initializer=kernel_initializer)
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    result = tf.matmul(inputs, kernel) + bias
    return result if activation is None else activation(result)


def original():
    """Import the original's modules on top of TensorFlow 1's names."""
    contrib, layers = types.ModuleType("tensorflow.contrib"), types.ModuleType("tensorflow.contrib.layers")
    layers.layer_norm = layer_norm
    contrib.layers = layers
    sys.modules |= {contrib.__name__: contrib, layers.__name__: layers}
    from bert import modeling

    version_1 = types.ModuleType("tensorflow")
    version_1.__getattr__ = lambda name: getattr(tf, name)
    version_1.layers = types.SimpleNamespace(dense=dense)
    modeling.tf = version_1
    return modeling


def slot(variable, name):
    tf.get_variable(f"{variable.op.name}/{name}", variable.shape, initializer=tf.ones_initializer())


def build(modeling, config, ids, mask, segments):
    """Build the pretraining model and the head for questions; return what to compute."""
    model = modeling.BertModel(
        config=config, is_training=False, input_ids=ids, input_mask=mask, token_type_ids=segments
    )
    hidden, words = model.get_sequence_output(), model.get_embedding_table()
    draw = modeling.create_initializer(0.3)
    with tf.variable_scope("cls/predictions"):  # as in run_pretraining.get_masked_lm_output
        with tf.variable_scope("transform"):
            changed = dense(
                tf.reshape(hidden, [-1, config.hidden_size]),
                config.hidden_size,
                modeling.get_activation(config.hidden_act),
                draw,
            )
            changed = modeling.layer_norm(changed)
        bias = tf.get_variable("output_bias", [config.vocab_size], initializer=draw)
        scores = tf.nn.bias_add(tf.matmul(changed, words, transpose_b=True), bias)
    with tf.variable_scope("cls/seq_relationship"):
        weights = tf.get_variable("output_weights", [2, config.hidden_size], initializer=draw)
        bias = tf.get_variable("output_bias", [2], initializer=draw)
        next_scores = tf.nn.bias_add(tf.matmul(model.get_pooled_output(), weights, transpose_b=True), bias)
    with tf.variable_scope("cls/squad"):
        weights = tf.get_variable("output_weights", [2, config.hidden_size], initializer=draw)
        bias = tf.get_variable("output_bias", [2], initializer=draw)
        spans = tf.nn.bias_add(
            tf.matmul(tf.reshape(hidden, [-1, config.hidden_size]), weights, transpose_b=True), bias
        )
    return {
        "hidden": hidden,
        "pooled": model.get_pooled_output(),
        "scores": scores,
        "next_scores": next_scores,
        "spans": spans,
    }


def main(out, layers=2, hidden=8):
    modeling = original()
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    settings = {
        "vocab_size": 30,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden,
        "hidden_act": "gelu",
        "max_position_embeddings": 12,
        "type_vocab_size": 2,
        "initializer_range": 0.3,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    (out / "bert_config.json").write_text(json.dumps(settings))
    tf.set_random_seed(7)
    draw = np.random.default_rng(7)
    ids = draw.integers(5, 30, (3, 9)).astype(np.int32)
    lengths = np.array([9, 4, 7])
    mask = (np.arange(9) < lengths[:, None]).astype(np.int32)
    segments = (np.arange(9) >= lengths[:, None] // 2).astype(np.int32) * mask
    wanted = build(
        modeling, modeling.BertConfig.from_dict(settings), *map(tf.constant, (ids, mask, segments))
    )
    for variable in tf.trainable_variables():
        slot(variable, "adam_m")
        slot(variable, "adam_v")
    tf.train.get_or_create_global_step()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for variable in tf.trainable_variables():  # norms and biases that say nothing would hide a mistake
            if "/adam_" not in variable.op.name and len(variable.shape) == 1:
                variable.load(draw.normal(0.5, 0.3, variable.shape).astype(np.float32), session)
        found = session.run(wanted)
        of_questions = [one for one in tf.global_variables() if one.op.name.startswith("cls/squad")]
        pretrained = [one for one in tf.global_variables() if one not in of_questions]
        encoder = [one for one in tf.trainable_variables("bert/") if "/adam_" not in one.op.name]
        tf.train.Saver(pretrained).save(session, str(out / "bert_model.ckpt"), write_meta_graph=False)
        answers = [*encoder, *(one for one in of_questions if "/adam_" not in one.op.name)]
        tf.train.Saver(answers).save(session, str(out / "squad" / "model.ckpt"), 1, write_meta_graph=False)
    np.savez(out / "outputs.npz", ids=ids, lengths=lengths, segments=segments, **found)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
