"""Documents summarised chunk by chunk; then each final summary is judged several times.

Every chunk's call updates the summary of the chunk before it, so the calls of one document follow
each other; the calls that judge wait for the last of them. Long documents are rare and very long.
"""

from collections.abc import Mapping

import numpy as np

from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.graph import Edges
from harness.workloads.ecdf import length_files, load_lengths
from harness.workloads.settings import require_positive, require_start
from harness.workloads.workload import Ints, Workload, services_of


class ChainSummary:
    """`documents` documents, one application each; all come in at the start.

    Chunks per document are lognormal with median `median_chunks` and `chunks_sigma` of the
    logarithm. `longest_chunks` gives the chunks of the longest document from so many documents on;
    it replaces the last one at that count. Documents of a smaller number are the first of a larger
    one. True answers are drawn from each model's measured lengths, or from the stored ones that
    `true_lengths` names for it, times `output_scale`.
    """

    def __init__(
        self,
        *,
        documents: int,
        evaluations: int,
        summariser: str,
        evaluator: str,
        max_output_tokens: int,
        evaluation_max_output_tokens: int | None,
        chunk_tokens: int,
        median_chunks: float,
        chunks_sigma: float,
        longest_chunks: Mapping[int, int],
        summary_template_tokens: int,
        evaluation_template_tokens: int,
        true_lengths: Mapping[str, str],
        output_scale: float,
        starts_s: float,
    ) -> None:
        evaluated = evaluation_max_output_tokens
        self._limits = (max_output_tokens, max_output_tokens if evaluated is None else evaluated)
        require_positive(
            "workload",
            documents=documents,
            evaluations=evaluations,
            max_output_tokens=max_output_tokens,
            evaluation_max_output_tokens=self._limits[1],
            chunk_tokens=chunk_tokens,
            median_chunks=median_chunks,
            output_scale=output_scale,
        )
        if not chunks_sigma >= 0:
            raise ValueError(f"workload.chunks_sigma is {chunks_sigma}, it cannot be negative")
        self._documents, self._evaluations, self._scale = documents, evaluations, output_scale
        self._starts_s, self._longest = require_start(starts_s), longest_chunks
        self._facts = (model_facts(summariser), model_facts(evaluator))
        self._lengths = {name: true_lengths.get(name, name) for name in (summariser, evaluator)}
        self._chunk_tokens, self._median, self._sigma = chunk_tokens, median_chunks, chunks_sigma
        self._templates = (summary_template_tokens, evaluation_template_tokens)
        self.models, self.files = (summariser, evaluator), length_files(self._lengths.values())

    def chunks(self, seed: int) -> Ints:
        """Chunks of every document."""
        rng = np.random.default_rng([seed, 2])
        drawn = np.exp(np.log(self._median) + self._sigma * rng.standard_normal(self._documents))
        longest = max((c for n, c in self._longest.items() if n <= self._documents), default=None)
        chunks: Ints = np.rint(drawn).astype(np.int64).clip(1, longest)
        for number, count in self._longest.items():
            if number <= self._documents:
                chunks[number - 1] = count
        return chunks

    def build(self, seed: int) -> Workload:
        """Same seed, same workload."""
        chunks = self.chunks(seed)
        rng = np.random.default_rng([seed, 3])
        calls, ends = int(chunks.sum()), np.cumsum(chunks)
        document = np.repeat(np.arange(len(chunks)), chunks)
        own = np.full(calls, self._chunk_tokens)
        own[ends - 1] = rng.integers(1, self._chunk_tokens + 1, len(chunks))
        inner = np.setdiff1d(np.arange(calls), ends - 1)
        judged = np.repeat(ends - 1, self._evaluations)
        edges = Edges(
            np.concatenate([inner, judged]),
            np.concatenate([inner + 1, calls + np.arange(len(judged))]),
            np.ones(len(inner) + len(judged), np.bool_),
        )
        service = np.repeat([0, 1], [calls, len(judged)])
        own_tokens = np.concatenate([own, np.zeros(len(judged), np.int64)])
        own_tokens += np.array(self._templates)[service]
        answers = np.concatenate(
            [
                self._answers(f, n, limit, rng)
                for f, n, limit in zip(self._facts, (calls, len(judged)), self._limits, strict=True)
            ]
        )
        count = len(service)
        return Workload(
            services=services_of(self._facts),
            service=service,
            arrival_s=np.zeros(count),
            prompt_tokens=own_tokens + edges.carried(answers),
            output_tokens=answers,
            max_output_tokens=np.array(self._limits)[service],
            app=np.concatenate([document, np.repeat(np.arange(len(chunks)), self._evaluations)]),
            deadline_s=np.full(count, np.nan),
            edges=edges,
            own_tokens=own_tokens,
        ).later(self._starts_s)

    def _answers(self, facts: ModelFacts, count: int, limit: int, rng: np.random.Generator) -> Ints:
        """True lengths of so many answers of a model."""
        drawn = load_lengths(self._lengths[facts.name]).sample(count, rng) * self._scale
        answers: Ints = np.rint(drawn).astype(np.int64).clip(1, limit)
        return answers
