"""The settings of most verbs: the contract of the command line. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field

import tyro

from bertsmith.data.config import PairingConfig
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.training.config import OptimizerConfig


@dataclass(frozen=True)
class VocabConfig:
    """Train a vocabulary on a corpus, or extend a model's; writes it with tokenizer.json beside it.

    Attributes:
        corpus: files (.txt, .jsonl, either also .gz or .zst), directories, or - for standard input.
        out: the vocab.txt to write (bpe: vocab.json, with merges.txt beside it).
        algorithm: "wordpiece" (BERT's) or "bpe" (RoBERTa's, byte-level: every text can be encoded as it is).
        extend: a model directory whose WordPiece vocabulary gets the corpus's most useful new pieces, behind
            its own; then prepare with it, and pretrain with --init of the same model.
        size: entries, special tokens included; with extend: after the extension.
        cased: keep case and accents.
        min_frequency: a merge must occur at least that often.
        limit_alphabet: most frequent single characters to keep; 0: as many as make up 99.99 % of the text, at
            least 1000.
        text: how the corpus is read.
        tokenizer: how text becomes pieces.
    """

    corpus: list[str]
    out: str
    algorithm: str = "wordpiece"
    extend: str | None = None
    size: int = 30522
    cased: bool = False
    min_frequency: int = 2
    limit_alphabet: int = 0
    text: CorpusConfig = field(default_factory=CorpusConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)


@dataclass(frozen=True)
class PrepareConfig:
    """Turn a corpus into pretraining instances: shards and a manifest with hashes.

    Attributes:
        corpus: files (.txt, .jsonl, either also .gz or .zst), directories, or - for standard input; NAME=PATH
            names the source (books, wiki and so on) that evaluation is reported by; default: the directory.
        vocab: a vocab.txt or vocab.json, or a directory that holds one.
        out: the data directory to write, or a URL to upload it to when it is whole.
        pairing: "nsp", "sop", "full-sentences" or "doc-sentences".
        seq_len: pieces of the longest instance, [CLS] and [SEP] counted.
        passes: how often the corpus is paired anew.
        short_seq_prob: share of documents with a shorter target length.
        random_next_prob: share of instances with a random second text (nsp).
        heldout: share of the documents kept for held-out evaluation, whole documents.
        workers: processes; 0: as many as there are processors.
        encoder: what encodes text, with the same ids: "nanotoken", "tokenizers" or "auto" (nanotoken where it
            is installed and supports the tokenizer).
        shard_size: bytes of ids after which a shard is full, such as 64M.
        resume: go on with the unfinished build of an earlier run, or begin if there is none.
        seed: of the pairs and of the held-out choice.
        text: how the corpus is read.
    """

    corpus: list[str]
    vocab: str
    out: str
    pairing: str = "nsp"
    seq_len: int = 128
    passes: int = 1
    short_seq_prob: float = 0.1
    random_next_prob: float = 0.5
    heldout: float = 0.01
    workers: int = 0
    encoder: str = "auto"
    shard_size: str = "64M"
    resume: bool = False
    seed: int = 0
    text: CorpusConfig = field(default_factory=CorpusConfig)

    @property
    def pairing_config(self) -> PairingConfig:
        """The settings of the pairs alone."""
        return PairingConfig(
            self.pairing, self.seq_len, self.short_seq_prob, self.random_next_prob, self.passes
        )


@dataclass(frozen=True)
class FinetuneConfig:
    """Fine-tune a model on a task; keeps the epoch that is best on dev.

    Attributes:
        task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, cmrc2018, swag, conll, or
            for own data classify, multilabel, regress, choose, answer, tag or embed.
        model: a model directory, or a configuration of one for random weights (see --random-weights).
        data: a GLUE task directory, or a CSV, TSV or JSONL file; for questions SQuAD's JSON, or JSONL with
            question, context and answers, or a directory with the published names; for choices SWAG's or
            CODAH's directory, too; for words to tag a directory of CoNLL-2003, a file of columns, or JSONL
            with spans; for embed rows of anchor and positive (and negative), or of two texts and a score.
        out: the run directory to write.
        recipe: what the settings start from: "default", "stable" (small data: 20 epochs at 2e-5, so that runs
            of several seeds differ less), "original" (the paper: 5e-5, no bias correction).
        dev: the dev file where data is a file; without it a tenth of the rows, chosen by the seed, is kept
            for dev.
        text: column of the text; default: found in the header. In a file of words and tags its number.
        second_text: column of the second text of a pair; of choices: of their list, or what their columns'
            names begin with.
        label: column of the label or labels; embed: of the score.
        label_separator: multilabel: what parts the labels in a field, such as ";" (JSON lists need none).
        class_weights: classify, multilabel: "balanced" makes labels count the same in training, however rare.
        grid: "paper" (batch size 16, 32; rate 5e-5, 3e-5, 2e-5; epochs 2, 3, 4), "glue" (rate 5e-5, 4e-5,
            3e-5, 2e-5), or axes such as batch-size=16,32 dropout=0,0.1; each combination with each seed.
        seeds: number of runs, with seeds seed, seed + 1, ...; the best on dev is kept as the model.
        seed: the first seed: head weights, order, dropout.
        epochs: passes over the training rows.
        batch_size: rows an optimiser step; where rows are read in windows: windows.
        seq_len: pieces of the longest row, special tokens counted; longer rows are cut and counted (128;
            questions: 384).
        truncation: of longer rows "tail" cuts the end, "head" the beginning, "head+tail" the middle (it keeps
            a quarter and three quarters); "windows" reads all in overlapping windows; "error" stops.
        missing: a row without text or label: "error" stops, "skip" leaves it out and counts it.
        precision: "auto", "float32" or "bfloat16".
        dropout: overrides both dropouts of the model.
        limit_rows: train on that many rows, chosen by the seed; 0: all.
        early_stopping: stop a run after so many epochs without a better one on dev; 0: never.
        layer_rate_decay: from layer to layer downwards, this share of the learning rate remains; 1: all.
        reinit_layers: so many top layers, and the pooler, start from random weights.
        bilstm: put a BiLSTM on the encoder, with random weights, which the head reads: for left-to-right
            models, as in the paper's table 5.
        restart_failed: how often a run that diverged, or learnt no more than one answer for all rows, is
            replaced by one with another seed.
        resume: go on with the runs of an earlier call, or begin if there are none; finished ones are kept.
        random_weights: start from random weights of the model's shape (a baseline).
        window_step: questions: pieces from the start of a window over a passage to that of the next, as the
            original's doc_stride (default 128).
        window_overlap: questions: pieces that neighbouring windows share, as the stride of tokenizers;
            instead of window_step.
        max_query_len: questions: pieces of the longest question (default 64); longer ones are cut.
        max_answer_len: questions: pieces of the longest answer (default 30).
        n_best: questions: candidates for an answer that are reported (default 20).
        context: tagging: words see their "document" as far as seq_len reaches (default), or their "sentence".
        scheme: tagging: iob1, iob2, bioes, bilou or bmes, in a file of columns; default: it is found.
        features: labels, values, tags: do not train the encoder, but a BiLSTM on its layers' output:
            embeddings, second-to-last, last, weighted-last-4, concat-last-4 or weighted-all (default rate:
            1e-3).
        lstm_size: labels and values with features: cells of the BiLSTMs in each direction (default 128).
        pooling: embed: "mean", "max" or "cls"; default: the model's own, or mean.
        normalize: embed: vectors are scaled to length 1 when they are used; default: as the model's, or yes.
        temperature: embed: by which cosines are divided (default 0.05); the smaller, the more the nearest
            texts that do not belong to the anchor weigh. Rows with scores are trained without it.
        optimizer: optimiser and schedule.
    """

    task: str
    model: str
    data: str
    out: str
    recipe: str = "default"
    dev: str | None = None
    text: str | None = None
    second_text: str | None = None
    label: str | None = None
    label_separator: str | None = None
    class_weights: str | None = None
    grid: list[str] = field(default_factory=list)
    seeds: int = 1
    seed: int = 0
    epochs: int = 3
    batch_size: int = 32
    seq_len: int = 128
    truncation: str = "tail"
    missing: str = "error"
    precision: str = "auto"
    dropout: float | None = None
    limit_rows: int = 0
    early_stopping: int = 0
    layer_rate_decay: float = 1.0
    reinit_layers: int = 0
    bilstm: bool = False
    restart_failed: int = 0
    resume: bool = False
    random_weights: bool = False
    window_step: int | None = None
    window_overlap: int | None = None
    max_query_len: int | None = None
    max_answer_len: int | None = None
    n_best: int | None = None
    context: str | None = None
    scheme: str | None = None
    features: str | None = None
    lstm_size: int | None = None
    pooling: str | None = None
    normalize: bool | None = None
    temperature: float | None = None
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(learning_rate=2e-5))


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluate a fine-tuned model on a labelled file, every row counts; or compare two fine-tunings.

    Attributes:
        model: a fine-tuned model directory.
        data: labelled rows in a form that finetune reads.
        compare: instead of a model and data, two run directories of finetune: do their kept models differ on
            the dev rows by more than chance? Their stored answers are tested; nothing is computed anew.
        task: default: the task stored in the model.
        split: of a directory: train, dev, or another labelled split such as test or dev_mismatched.
        out: a file for the metrics as JSON.
        text: column of the text; default: as in training.
        second_text: column of the second text of a pair; default: as in training.
        label: column of the label; default: as in training.
        missing: a row without text or label: "error" or "skip".
        scheme: of the tags in a file of columns; default: it is found.
        batch_tokens: pieces a forward pass.
        precision: "auto", "float32" or "bfloat16".
    """

    model: str = ""
    data: str = ""
    compare: list[str] = field(default_factory=list)
    task: str | None = None
    split: str = "dev"
    out: str | None = None
    text: str | None = None
    second_text: str | None = None
    label: str | None = None
    missing: str = "error"
    scheme: str | None = None
    batch_tokens: int = 4096
    precision: str = "float32"


@dataclass(frozen=True)
class PredictConfig:
    """Predict each row of a file: one JSON line a row, in the same order.

    A row without a text gives a line with "error" instead of an answer, so lines stay side by side.

    Attributes:
        model: a fine-tuned model directory.
        input: a .txt (one text a line), CSV, TSV or JSONL file, or - for text lines on standard input; for
            questions SQuAD's JSON or JSONL; to tag words also a file of columns.
        out: the .jsonl file to write, or - for standard output; a name in .conll: the columns of the input
            with one more, the tags.
        text: column of the text; default: as in training.
        second_text: column of the second text of a pair; default: as in training.
        scheme: of the tags in a .conll file: iob1, iob2, bioes, bilou or bmes; default: the input's, or iob2.
        batch_tokens: pieces a forward pass.
        precision: "auto", "float32" or "bfloat16".
    """

    model: str
    input: str
    out: str
    text: str | None = None
    second_text: str | None = None
    scheme: str | None = None
    batch_tokens: int = 4096
    precision: str = "float32"


@dataclass(frozen=True)
class FillConfig:
    """Fill the [MASK]s of a text.

    Attributes:
        text: a text with at least one [MASK].
        model: a pretrained model directory.
        top: candidates for each [MASK].
    """

    text: tyro.conf.Positional[str]
    model: str
    top: int = 5


@dataclass(frozen=True)
class DoctorConfig:
    """Find what is wrong with a corpus, prepared data or task rows, what it costs and how to mend it.

    Exit code 1 when something must be mended first, because training would be wasted.

    Attributes:
        corpus: files (.txt, .jsonl, either also .gz or .zst), directories, or - for standard input.
        data: a directory written by prepare; with task: rows in a form that finetune reads.
        task: the task that the rows in data are for; see finetune.
        dev: the dev file of own rows.
        text_column: of own rows, finetune's --text; default: found in the header.
        second_text_column: of own rows, finetune's --second-text.
        label_column: of own rows, finetune's --label.
        label_separator: of own rows, what parts the labels in a field.
        seq_len: the limit of a row, in pieces (with task and vocab).
        vocab: the vocabulary that corpus or rows are meant for: how much is [UNK], which rows are too long.
        against: evaluation sets that should not stand in the corpus: GLUE directories (their dev and test
            rows), or CSV, TSV, JSONL or text files.
        ngram_words: words in a row that count as overlap with an evaluation set (13 as in GPT-3, at least 8).
        pairing: what the corpus is meant for: "nsp", "sop", "full-sentences" or "doc-sentences".
        text: how the corpus is read.
    """

    corpus: list[str] = field(default_factory=list)
    data: str | None = None
    task: str | None = None
    dev: str | None = None
    text_column: str | None = None
    second_text_column: str | None = None
    label_column: str | None = None
    label_separator: str | None = None
    seq_len: int = 128
    vocab: str | None = None
    against: list[str] = field(default_factory=list)
    ngram_words: int = 13
    pairing: str = "nsp"
    text: CorpusConfig = field(default_factory=CorpusConfig)


@dataclass(frozen=True)
class ReportConfig:
    """Show runs in one HTML file that needs nothing beside it: curves, results, errors, settings.

    Attributes:
        runs: directories that finetune or pretrain wrote; several are compared.
        out: the .html file to write.
        title: of the page; default: the task.
        errors: how many of the worst errors to show with their texts; 0: no text of the data is shown.
    """

    runs: tyro.conf.Positional[list[str]]
    out: str = "report.html"
    title: str | None = None
    errors: int = 25


@dataclass(frozen=True)
class DemoConfig:
    """The whole path on English that is already on the machine: no download.

    Attributes:
        out: the directory to write.
        budget: wall-clock time of the pretraining.
        seeds: fine-tuning runs from each start.
        seed: of everything.
    """

    out: str = "demo"
    budget: str = "4m"
    seeds: int = 5
    seed: int = 0
