"""A model directory as a predictor: text in, typed answers out.

Every verb takes a list and returns one answer a text in the same order. An answer does not depend on the
other texts (float32: to 1e-5), and says whether its text was cut to the model's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from bertsmith import answers
from bertsmith.bundle import Bundle, load_bundle
from bertsmith.device import set_threads
from bertsmith.errors import InputError
from bertsmith.model.bert import Bert, BertForPreTraining
from bertsmith.stored_task import plain_head
from bertsmith.tasks import vectors
from bertsmith.tasks.asked import items_to_choose, questions_to_answer, texts_to_rank, texts_to_score
from bertsmith.tasks.cloze import filled_texts
from bertsmith.tasks.encode import WINDOWS, Texts, checked_texts, encode_rows, listed
from bertsmith.tasks.inference import Inference, encoder_of, inference_settings, prepared_model
from bertsmith.tasks.kind import Encoding, Kind, Split
from bertsmith.tasks.pieces import PlacedPieces, count_pieces, placed_pieces
from bertsmith.tasks.relevance import reads_pairs, relevant_label
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagged_rows import TaggedRow, row_to_tag
from bertsmith.tasks.task import KINDS, TASKS, stored_model

Text = str | tuple[str, str]
AnswerT = TypeVar("AnswerT")


def load(
    path: str | Path,
    precision: str = "float32",
    batch_tokens: int = 4096,
    threads: int | None = None,
    quantize: str | None = None,
) -> Predictor:
    """Load a model directory, ours or Hugging Face's.

    Args:
        path: the directory.
        precision: "float32", "bfloat16", or "auto": bfloat16 where the processor computes in it.
        batch_tokens: pieces of a forward pass.
        threads: of the whole process; ``None``: as many as it may use (affinity and control groups), or fewer
            where the user asked for fewer.
        quantize: "int8": products of 8-bit integers in the encoder, on a processor; precision stays float32.

    Raises:
        InputError: the directory or a setting is wrong.
    """
    set_threads(threads)
    if quantize is not None and precision != "float32":
        raise InputError(f"precision {precision} would be ignored with quantize; leave it at float32")
    inference = inference_settings(precision, batch_tokens)
    bundle = load_bundle(path)
    model = prepared_model(stored_model(bundle), bundle.tokenizer, inference, quantize)
    return Predictor(bundle, model, inference)


class Predictor:
    """A loaded model; see ``load``.

    Attributes:
        bundle: what the directory holds.
        seq_len: pieces of the longest text, special tokens counted; longer ones are cut and say so.
        truncation: what happens to longer texts, as stored with the model; "windows" holds for its task,
            while vectors are of the beginning.
    """

    def __init__(self, bundle: Bundle, model: nn.Module, inference: Inference) -> None:
        encoding = Encoding.of(bundle)
        self.bundle = bundle
        self.seq_len = encoding.seq_len
        self.truncation = encoding.truncation
        self._model = model.to(inference.device).eval()
        self._inference = inference

    @property
    def _encoding(self) -> Encoding:
        return Encoding(self.bundle.tokenizer, self.seq_len, self.truncation)

    @property
    def labels(self) -> list[str] | None:
        """Names of a classifier's labels in the order of their numbers."""
        return (self.bundle.task or {}).get("labels")

    def classify(self, texts: Sequence[Text]) -> list[answers.Classification]:
        """Return the label of each text, or of each pair given as a tuple.

        Raises:
            InputError: the model is no classifier, or a text is none.
        """
        return self._scored(answers.Classification, texts, "classification")

    def multilabel(self, texts: Sequence[Text]) -> list[answers.Labelled]:
        """Return the labels of each text, or of each pair given as a tuple.

        Raises:
            InputError: the model does not give any number of labels, or a text is none.
        """
        return self._scored(answers.Labelled, texts, "multi-label")

    def regress(self, texts: Sequence[Text]) -> list[answers.Regression]:
        """Return the value of each text, or of each pair given as a tuple.

        Raises:
            InputError: the model is no regression, or a text is none.
        """
        return self._scored(answers.Regression, texts, "regression")

    def tag(self, texts: Sequence[str | Sequence[str]]) -> list[answers.Tagging]:
        """Return a tag for each word of each text, and the entities.

        Args:
            texts: texts, whose words are found (``tagged_rows.words_of``), or lists of words.

        Raises:
            InputError: the model has no head for words, or an item is neither a text nor a list of words.
        """
        return self.tag_rows([row_to_tag(number, text) for number, text in enumerate(listed(texts))])

    def tag_rows(self, rows: Sequence[TaggedRow]) -> list[answers.Tagging]:
        """Return the same for rows as they are read from files; those of one document see each other.

        Raises:
            InputError: the model has no head for words.
        """
        kind = self._kind("tagging")
        labels = tuple(self.labels or ())
        split = kind.encode(TASKS["tag"], RowSet(list(rows), "texts"), labels, Encoding.of(self.bundle))
        return [answers.Tagging.of(answer, cut) for answer, cut in self._answers(kind, split)]

    def choose(self, items: Sequence[tuple[str, Sequence[str]]]) -> list[answers.Choice]:
        """Return the best choice for each context.

        Args:
            items: (context, two or more choices) of each; rows may have different numbers of choices.

        Raises:
            InputError: the model does not choose, or an item is no context with choices.
        """
        kind = self._kind("choice")
        split = items_to_choose(items, self._encoding)
        return [answers.Choice(**answer, truncated=cut) for answer, cut in self._answers(kind, split)]

    def _scored(self, make: Callable[..., AnswerT], texts: Sequence[Text], head: str) -> list[AnswerT]:
        kind = self._kind(head)
        columns = (self.bundle.task or {}).get("columns")
        split = texts_to_score(texts, columns, self._encoding, self._where)
        return [make(**found, truncated=cut) for found, cut in self._answers(kind, split)]

    def _kind(self, wanted: str) -> Kind:
        """Return the kind of the model's head, on an encoder that was trained with it or on a frozen one.

        Raises:
            InputError: the model has another head, or none.
        """
        head = (self.bundle.task or {}).get("head")
        if head is None or plain_head(head) != wanted:
            verb = KINDS[wanted].verb
            raise InputError(
                f"{self._where}: cannot {verb}, it has no {wanted} head; it can {', '.join(self.can)}"
            )
        return KINDS[head]

    def _answers(self, kind: Kind, split: Split) -> Iterator[tuple[dict[str, Any], bool]]:
        """Return each row's answer, and whether the row was cut."""
        outputs = kind.outputs(self._model, split, self._inference)
        labels = None if self.labels is None else tuple(self.labels)
        tuned = (self.bundle.task or {}).get("tuned") or {}
        return zip(kind.answers(split, outputs, labels, tuned), split.truncated, strict=True)

    def answer(self, questions: Sequence[tuple[str, str]]) -> list[answers.Answer]:
        """Return the answer to each question out of its passage, given as (question, passage).

        A passage of any length is read, in windows; the answer's places count its characters.

        Raises:
            InputError: the model has no head for answers, or an item is no pair of texts.
        """
        kind = self._kind("spans")
        split = questions_to_answer(questions, Encoding.of(self.bundle))
        return [answers.Answer.of(values, cut) for values, cut in self._answers(kind, split)]

    def embed(
        self,
        texts: Sequence[Text],
        pooling: str | None = None,
        layer: int | str = -1,
        normalize: bool | None = None,
    ) -> answers.Embeddings:
        """Return one vector a text.

        Args:
            texts: texts, or pairs as tuples.
            pooling: "mean" or "max" over all pieces of the text, [CLS] and [SEP] included (as
                sentence-transformers does), or "cls", the vector of [CLS]; ``None``: as stored with the
                model, else "mean".
            layer: -1 is the last layer, -2 that before it, 0 the embeddings' output; or a name of the paper's
                table 7, such as "concat-last-4" (``features.LAYER_CHOICES``; those with learned weights are
                for heads on frozen features).
            normalize: scale each vector to length 1; ``None``: as stored with the model, else not.

        Raises:
            InputError: a pooling or layer does not exist, or a text is none.
        """
        stored = self._stored_pooling
        chosen = vectors.choose(self._encoder, pooling or stored.get("pooling", "mean"), layer)
        rows = encode_rows(checked_texts(texts), self.bundle.tokenizer, self.seq_len, self._cut)
        found = vectors.embed_rows(self._encoder, rows, chosen, self._inference)
        if stored.get("normalize", False) if normalize is None else normalize:
            found = vectors.normalized(found)
        return answers.Embeddings(found, [row.truncated for row in rows])

    def embed_tokens(self, texts: Sequence[str], layer: int | str = -1) -> list[answers.TokenVectors]:
        """Return one vector for each piece of each text, with the piece's place in the text.

        Raises:
            InputError: the layer does not exist, or a text is none.
        """
        chosen = vectors.choose(self._encoder, "cls", layer)
        pairs = checked_texts(texts)
        if any(second is not None for _, second in pairs):
            raise InputError("embed_tokens takes single texts, not pairs; give each text by itself")
        placed = self._placed(pairs, masks=False)
        found = vectors.embed_pieces(self._encoder, [text.row for text in placed], chosen, self._inference)
        return [
            answers.TokenVectors(text.tokens[1:-1], text.offsets[1:-1], values[1:-1], text.truncated)
            for text, values in zip(placed, found, strict=True)
        ]

    def similarity(
        self, first: Sequence[Text], second: Sequence[Text] | None = None, pooling: str | None = None
    ) -> answers.Similarities:
        """Return the cosine of every first text's vector with every second text's.

        Args:
            first: texts.
            second: texts; default: the first ones.
            pooling: as in ``embed``.

        Raises:
            InputError: a pooling does not exist, or a text is none.
        """
        rows = self.embed(first, pooling, normalize=True)
        columns = rows if second is None else self.embed(second, pooling, normalize=True)
        return answers.Similarities(rows.vectors @ columns.vectors.T, rows.truncated, columns.truncated)

    def rerank(self, query: str, texts: Sequence[str], label: str | None = None) -> list[answers.Ranked]:
        """Return the texts, the best one for the query first.

        A classifier or regression that was trained on pairs reads (query, text) together; any other model
        compares vectors by their cosine.

        Args:
            query: a text.
            texts: single texts.
            label: whose probability is a classifier's score; ``None``: "entailment" where there is such a
                label, or the second of two.

        Raises:
            InputError: the query or a text is none, or the label is unknown or has to be named.
        """
        scored = self._relevance(query, texts_to_rank(query, texts), label)
        ranked = [answers.Ranked(number, *found) for number, found in enumerate(scored)]
        return sorted(ranked, key=lambda item: (-item.score, item.index))

    def _relevance(self, query: str, texts: list[str], label: str | None) -> list[tuple[float, bool]]:
        """Return the score of each text, and whether something was cut."""
        if not reads_pairs(self.bundle.task):
            if label is not None:
                raise InputError(f"label {label!r} would be ignored: {self._where} ranks by vectors")
            found = self.similarity([query], texts)
            cut = [found.first_truncated[0] or truncated for truncated in found.second_truncated]
            return list(zip(found.values[0].tolist(), cut, strict=True))
        pairs = [(query, text) for text in texts]
        if self.labels is None:
            return [(answer.value, answer.truncated) for answer in self.regress(pairs)]
        name = relevant_label(self.labels, label, self._where)
        return [(answer.probabilities[name], answer.truncated) for answer in self.classify(pairs)]

    def tokenize(self, texts: Sequence[Text], masks: bool = False) -> list[answers.Tokenized]:
        """Return the pieces of each text or pair as the model reads them.

        Args:
            texts: texts, or pairs as tuples.
            masks: read "[MASK]" as the mask; else it is text like any other.

        Raises:
            InputError: a text is none.
        """
        return [
            answers.Tokenized(text.ids, text.tokens, text.offsets, text.truncated)
            for text in self._placed(checked_texts(texts), masks)
        ]

    def count_pieces(self, texts: Sequence[Text]) -> list[int]:
        """Return how many pieces each text or pair has before it is cut, special tokens counted.

        Raises:
            InputError: a text is none.
        """
        return [count_pieces(pair, self.bundle.tokenizer) for pair in checked_texts(texts)]

    def attention(self, texts: Sequence[Text], masks: bool = False) -> list[answers.Attention]:
        """Return where each piece of each text or pair looks, in every layer and head.

        Args:
            texts: texts, or pairs as tuples; the weights of a text of 512 pieces take 150 MB in BERT-base.
            masks: read "[MASK]" as the mask; else it is text like any other.

        Raises:
            InputError: a text is none, or the model has no attention.
        """
        if "attention" not in self.can:
            raise InputError(f"{self._where}: it has no attention but LSTMs; it can {', '.join(self.can)}")
        placed = self._placed(checked_texts(texts), masks)
        weights = vectors.attention_of(self._encoder, [text.row for text in placed], self._inference)
        return [
            answers.Attention(text.tokens, text.offsets, values, text.truncated)
            for text, values in zip(placed, weights, strict=True)
        ]

    def _placed(self, pairs: list[Texts], masks: bool) -> list[PlacedPieces]:
        tokenizer = self.bundle.tokenizer
        return [placed_pieces(pair, tokenizer, self.seq_len, self._cut, masks) for pair in pairs]

    @property
    def _cut(self) -> str:
        """What happens to a long text that has one result; windows are for the task alone."""
        return "tail" if self.truncation == WINDOWS else self.truncation

    @property
    def _stored_pooling(self) -> dict[str, Any]:
        stored = self.bundle.task or {}
        return stored.get("settings") or {} if stored.get("head") == "embedding" else {}

    def fill(self, texts: Sequence[str], top: int = 5) -> list[answers.Filled]:
        """Return the most probable pieces for each [MASK] of each text.

        Args:
            texts: each with at least one [MASK].
            top: candidates for each [MASK].

        Raises:
            InputError: the model has no masked language model head, a text has no [MASK] or has one beyond
                the model's length, or ``top`` is out of range.
        """
        if not isinstance(self._model, BertForPreTraining):
            raise InputError(
                f"{self._where}: cannot fill, it has no masked language model head; it can "
                f"{', '.join(self.can)}; take a pretrained model that was saved with it"
            )
        if not self.bundle.config.sees_both:
            raise InputError(
                f"{self._where}: cannot fill, no place of it sees both sides: it was trained to predict "
                "neighbouring pieces; take a model that sees both sides"
            )
        vocab_size = self.bundle.config.vocab_size
        if not 1 <= top <= vocab_size:
            raise InputError(f"top is {top}; it has to be between 1 and the vocabulary's {vocab_size}")
        pairs = checked_texts(texts)
        filled = filled_texts(
            self._model,
            [text for text, _ in pairs],
            self.bundle.tokenizer,
            self.seq_len,
            top,
            self._inference,
        )
        return [
            answers.Filled(text, [[answers.Candidate(*found) for found in mask] for mask in masks], cut)
            for text, masks, cut in filled
        ]

    @property
    def _encoder(self) -> Bert:
        return encoder_of(self._model)

    @property
    def _where(self) -> str:
        return str(self.bundle.directory)

    @property
    def can(self) -> tuple[str, ...]:
        """The verbs that this model can do, that of its head first."""
        kind = KINDS.get((self.bundle.task or {}).get("head", ""))
        head = () if kind is None else (kind.verb,)
        is_filling = isinstance(self._model, BertForPreTraining) and self.bundle.config.sees_both
        fill = ("fill",) if is_filling else ()
        attention = ("attention",) if self.bundle.config.mixing == "attention" else ()
        return tuple(dict.fromkeys((*head, *fill, "embed", "similarity", "rerank", *attention, "tokenize")))
