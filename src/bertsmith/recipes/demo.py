"""``demo``: the whole path on English that is already on the machine, with no download.

The documentation of this Python installation is the corpus. Some modules are kept apart as test modules: no
sentence of theirs is seen in pretraining; the cloze examples and the dev rows of the task come from them. The
task is real: tell which library a sentence documents, when the sentence does not name it.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.files import write_json, write_text
from bertsmith.model.config import BertConfig
from bertsmith.predictor import load
from bertsmith.randomness import generator
from bertsmith.recipes.config import (
    DemoConfig,
    FinetuneConfig,
    PrepareConfig,
    VocabConfig,
)
from bertsmith.recipes.demo_report import Report, Start, compare, read_events
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.vocab import vocab
from bertsmith.text.documentation import DocumentedModule, documented_modules
from bertsmith.text.sentences import split_sentences
from bertsmith.training.config import OptimizerConfig

VOCABULARY_SIZE = 6000
SEQ_LEN = 64
TEST_SHARE = 0.1
NUM_LIBRARIES = 8
TRAIN_ROWS_PER_LIBRARY = 100
DEV_ROWS_PER_LIBRARY = 100
NUM_EXAMPLES = 8

logger = logging.getLogger(__name__)


def demo(config: DemoConfig) -> dict[str, Any]:
    """Run the whole path and write ``report.html``.

    Args:
        config: where to write, the pretraining budget, the number of seeds.

    Returns:
        The held-out figures of the pretraining, both fine-tuning results and where everything lies.

    Raises:
        InputError: ``config.out`` exists and was not written by the demo.
    """
    start = time.perf_counter()
    out = _fresh_directory(Path(config.out))
    train, test = _split(list(documented_modules()), config.seed)
    _write_corpus(out / "corpus" / "train.txt", train)
    _write_corpus(out / "corpus" / "test.txt", test)
    corpus = [str(out / "corpus" / "train.txt")]
    vocab(VocabConfig(corpus=corpus, out=str(out / "vocab" / "vocab.txt"), size=VOCABULARY_SIZE))
    prepare(
        PrepareConfig(
            corpus=corpus,
            vocab=str(out / "vocab"),
            out=str(out / "data"),
            heldout=0.03,
            seq_len=SEQ_LEN,
            passes=2,
            seed=config.seed,
        )
    )
    pretraining = pretrain(pretraining_config(config, out))
    model = out / "run" / "model"
    examples = _cloze_examples(model, test, config.seed)
    libraries = _largest_libraries(train, test)
    _write_rows(out / "task" / "train.jsonl", train, libraries, TRAIN_ROWS_PER_LIBRARY, config.seed)
    _write_rows(out / "task" / "dev.jsonl", test, libraries, DEV_ROWS_PER_LIBRARY, config.seed)
    results = {
        name: finetune(finetuning_config(config, out, random_weights=name == "random"))
        for name in ("pretrained", "random")
    }
    starts = {name: Start.of(result) for name, result in results.items()}
    seconds = round(time.perf_counter() - start, 1)
    commands = [
        f'bertsmith fill "The function returns a [MASK] of strings." --model {model}',
        f"bertsmith predict --model {out / 'finetune-pretrained' / 'model'} --input FILE.txt --out -",
        "bertsmith vocab --corpus YOUR_TEXT --out vocab/vocab.txt   # then prepare, pretrain, finetune",
    ]
    report = Report(
        corpus_bytes=(out / "corpus" / "train.txt").stat().st_size,
        num_modules=len(train),
        budget=config.budget,
        seconds=seconds,
        pretraining=pretraining,
        events=read_events(out / "run" / "metrics.jsonl"),
        examples=examples,
        libraries=libraries,
        rows=(results["pretrained"]["train_rows"], results["pretrained"]["dev_rows"]),
        starts=starts,
        environment=json.loads((out / "run" / "environment.json").read_text(encoding="utf-8")),
        commands=commands,
    )
    write_text(out / "report.html", report.html())
    difference, standard_errors = compare(starts["pretrained"].accuracies, starts["random"].accuracies)
    summary = {
        "seconds": seconds,
        "pretraining": pretraining,
        "examples": [_shown(example) for example in examples],
        "finetuning": {name: asdict(result) for name, result in starts.items()},
        "difference": difference,
        "difference_in_standard_errors": standard_errors,
        "report": str(out / "report.html"),
        "model": str(model),
        "next": commands,
    }
    write_json(out / "demo.json", summary)
    return summary


def pretraining_config(config: DemoConfig, out: Path) -> PretrainConfig:
    """Return the pretraining settings, found by experiment for four minutes on two cores (docs/demo.md).

    Deviations from the original, each for speed: sequences of 64 pieces and what the ``fast-*`` presets have
    (docs/recipes.md).
    """
    return PretrainConfig(
        data=str(out / "data"),
        out=str(out / "run"),
        preset="bert-tiny",
        budget=config.budget,
        batch_size=32,
        dropout=0.0,
        word_bias="frequency",
        seed=config.seed,
        architecture=BertConfig(
            hidden_size=192,
            num_layers=2,
            num_heads=3,
            intermediate_size=768,
            norm="pre",
            initializer_std=0.05,
        ),
        optimizer=OptimizerConfig(name="muon", learning_rate=4e-3, adam_rate=2e-3, beta2=0.98),
    )


def finetuning_config(config: DemoConfig, out: Path, random_weights: bool) -> FinetuneConfig:
    """Return the fine-tuning settings, the same from either start."""
    return FinetuneConfig(
        task="classify",
        model=str(out / "run" / "model"),
        data=str(out / "task" / "train.jsonl"),
        dev=str(out / "task" / "dev.jsonl"),
        out=str(out / ("finetune-random" if random_weights else "finetune-pretrained")),
        seeds=config.seeds,
        seed=config.seed,
        epochs=6,
        batch_size=16,
        random_weights=random_weights,
        optimizer=OptimizerConfig(learning_rate=5e-4),
    )


def _fresh_directory(out: Path) -> Path:
    """Return the directory, emptied if an earlier demo wrote it."""
    marker = out / ".bertsmith-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise InputError(f"--out {out} holds files that no demo wrote; give an empty or a new directory")
    shutil.rmtree(out, ignore_errors=True)
    write_text(marker, "written by bertsmith demo; the next demo empties this directory\n")
    return out


def _split(
    modules: Sequence[DocumentedModule], seed: int
) -> tuple[list[DocumentedModule], list[DocumentedModule]]:
    """Return the modules for training and those kept apart."""
    kept_apart = generator(seed, "demo test modules").random(len(modules)) < TEST_SHARE
    train = [module for module, apart in zip(modules, kept_apart, strict=True) if not apart]
    test = [module for module, apart in zip(modules, kept_apart, strict=True) if apart]
    return train, test


def _write_corpus(path: Path, modules: Iterable[DocumentedModule]) -> None:
    write_text(path, "\n\n".join("\n".join(module.paragraphs) for module in modules) + "\n")


def _sentences(modules: Iterable[DocumentedModule]) -> list[tuple[str, str]]:
    """Return (library, sentence) of sentences long enough to say something, without repetition."""
    found = {
        sentence: module.library
        for module in modules
        for paragraph in module.paragraphs
        for sentence in split_sentences(paragraph)
        if 8 <= len(sentence.split()) <= 40
    }
    return [(library, sentence) for sentence, library in found.items()]


def _largest_libraries(train: Sequence[DocumentedModule], test: Sequence[DocumentedModule]) -> list[str]:
    """Return the libraries with most documentation, among those with enough of it on both sides."""
    in_train = Counter(library for library, _ in _sentences(train))
    in_test = Counter(library for library, _ in _sentences(test))
    enough = [
        library
        for library, _ in in_train.most_common()
        if in_test[library] >= DEV_ROWS_PER_LIBRARY and in_train[library] >= TRAIN_ROWS_PER_LIBRARY
    ]
    return sorted(enough[:NUM_LIBRARIES])


def _write_rows(
    path: Path, modules: Sequence[DocumentedModule], libraries: Sequence[str], rows_each: int, seed: int
) -> None:
    """Write labelled sentences that name none of the libraries."""
    names = re.compile("|".join(map(re.escape, libraries)), re.IGNORECASE)
    sentences = [pair for pair in _sentences(modules) if pair[0] in libraries and not names.search(pair[1])]
    lines = []
    for library in libraries:
        own = [sentence for name, sentence in sentences if name == library]
        chosen = generator(seed, f"demo rows {library}").permutation(len(own))[:rows_each]
        lines += [
            json.dumps({"text": own[index], "label": library}, ensure_ascii=False) for index in sorted(chosen)
        ]
    write_text(path, "\n".join(lines) + "\n")


def _cloze_examples(model: Path, test: Sequence[DocumentedModule], seed: int) -> list[dict[str, Any]]:
    """Return sentences of the test modules with one word blanked and the model's guesses."""
    predictor = load(model)
    sentences = [sentence for _, sentence in _sentences(test)]
    order = generator(seed, "demo examples").permutation(len(sentences))
    examples: list[dict[str, Any]] = []
    for index in order[:NUM_EXAMPLES]:
        words = sentences[index].split()
        candidates = [
            place for place, word in enumerate(words) if len(word) >= 4 and word.isalpha() and word.islower()
        ]
        if not candidates:
            continue
        place = candidates[int(generator(seed, "demo blank", 0, int(index)).integers(len(candidates)))]
        text = " ".join([*words[:place], "[MASK]", *words[place + 1 :]])
        guesses = [asdict(candidate) for candidate in predictor.fill([text], top=5)[0].masks[0]]
        examples.append({"text": text, "answer": words[place], "guesses": guesses})
    return examples


def _shown(example: dict[str, Any]) -> str:
    guesses = ", ".join(f"{guess['token']} {guess['probability']:.0%}" for guess in example["guesses"])
    return f"{example['text']} -> {guesses} (the word was {example['answer']})"
