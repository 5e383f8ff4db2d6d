"""Token ids of prompts: drawn or read, and the answers that the graph of an application carries."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import inputs
from harness.engines.vllm.group import Submission
from harness.engines.vllm.options import VllmOptions
from harness.interface.entities import Request
from harness.workloads.workload import Workload

# After ours, which set what vLLM and what it brings read when they are imported.
from transformers import AutoConfig, AutoTokenizer  # isort: skip

FIRST_TOKEN_ID, VOCABULARY = 3, 900  # random prompts keep clear of special tokens


def texts_of(path: str | None) -> list[str]:
    """The lines of a file that are not empty. ValueError where it has none or is not there."""
    if path is None:
        return []
    try:
        lines = [line for line in inputs.read(Path(path)).decode("utf-8").splitlines() if line]
    except OSError as error:
        raise ValueError(f"engine.texts={path} cannot be read: {error.strerror}") from None
    if not lines:
        raise ValueError(f"engine.texts={path} holds no text")
    return lines


@cache
def _vocabulary(model: str) -> int:
    """How many token ids a model knows."""
    return int(AutoConfig.from_pretrained(model).vocab_size)


@cache
def _tokenizer(model: str) -> Any:
    """That of a model. ValueError where it has none."""
    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{model} has no tokenizer for engine.texts: {reason}") from None


class Prompts:
    """The prompts of a run. `answers` has the tokens that each request has produced so far.

    `submitted` has the requests whose prompts have been handed over.

    A request's own part is the same whenever it is asked for. Behind it come the answers carried to
    it, in the order of the edges.
    """

    def __init__(self, workload: Workload, options: VllmOptions) -> None:
        """The options of the engine say which models, texts and lengths.

        Raises ValueError where answers are carried whose lengths are not known ahead.
        """
        self._workload, self._seed, self._model_of = workload, options.seed, options.model_path
        self._forces_lengths = options.forces_lengths
        self._texts = texts_of(options.texts)
        self.answers: dict[int, list[int]] = {}
        self.submitted: set[int] = set()
        edges, carries = workload.edges, workload.edges.carries
        if carries.any() and not self._forces_lengths:
            raise ValueError(
                "engine.forces_lengths=false: answers that are part of other prompts need the "
                "lengths of the workload"
            )
        self._sources: dict[int, list[int]] = {}
        for parent, child in zip(edges.parent[carries], edges.child[carries], strict=True):
            self._sources.setdefault(int(child), []).append(int(parent))

    def prompt(self, request: int) -> list[int]:
        """The token ids of a prompt, as many as the workload says."""
        ids = self._own(request, int(self._workload.own_tokens[request]))
        for parent in self._sources.get(request, []):
            ids += self._routed(parent, request)
        return ids

    def submission(self, facts: Request) -> Submission:
        """A request as a group takes it, with what it has produced so far; again if it moves."""
        request = int(facts.id)
        length = int(self._workload.output_tokens[request])
        forced = length if self._forces_lengths else None
        produced = tuple(self.answers.get(request, ()))
        moved = request in self.submitted
        self.submitted.add(request)
        return Submission(facts, self.prompt(request), forced, produced, moved)

    def _own(self, request: int, count: int) -> list[int]:
        if not self._texts:
            rng = np.random.default_rng([self._seed, 5, request])
            ids: list[int] = rng.integers(FIRST_TOKEN_ID, VOCABULARY, count).tolist()
            return ids
        text = self._texts[request % len(self._texts)]
        return _repeated(_tokenizer(self._model(request)).encode(text), count)

    def _routed(self, parent: int, child: int) -> list[int]:
        """An answer as the model of another request reads it, as many tokens as it has.

        With real text it is said again in the other model's tokens; random tokens are folded into
        its vocabulary.
        """
        tokens, source, target = self.answers[parent], self._model(parent), self._model(child)
        if source == target:
            return list(tokens)
        if self._texts:
            text = _tokenizer(source).decode(tokens)
            return _repeated(_tokenizer(target).encode(text), len(tokens))
        most = _vocabulary(target)
        return [token % most for token in tokens]

    def _model(self, request: int) -> str:
        return self._model_of(self._workload.service_of(request))


def _repeated(ids: list[int], count: int) -> list[int]:
    """Cut to a length; what is too short is said again."""
    if not ids:
        raise ValueError("a text of engine.texts has no token")
    return (ids * (count // len(ids) + 1))[:count]
