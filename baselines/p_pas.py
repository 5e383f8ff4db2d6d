"""P-PAS: cap the prompt tokens of an iteration while prompts compete and a request decodes.

Paper      Saemann, P-PAS: Prefill-Pressure Adaptive Scheduling for Long-Context LLM Serving,
           arXiv 2608.15171, by its patch for vLLM 0.22.1: TimoSaemann/ppas-vllm,
           scheduler/ppas_vllm_0.22.1.patch (commit f36197dd); P-PAS+ by ppas_vllm_0.27.1.patch
           (commit 3e4bf10b). The paper's own text was not read.
Idea       A large token budget computes a single prompt in few iterations, a small one keeps
           decodes quick while several prompts are computed. So the budget is small only while at
           least so many prompts are to be computed and at least one request decodes.
Map        N_prefill, N_decode, pressure      -> `_is_pressed`
           0.22.1: cap on prompt tokens       -> `cap_tokens`
           0.27.1: cap on all tokens          -> `caps_decodes`
           0.27.1: P-PAS+                     -> `lone_prompt_tokens`
Constants  `least_prompts` 2, `cap_tokens` 2048, of the 0.22.1 patch; the batch rule as vLLM V1: see
           scenarios/policy/p_pas.yaml
Differs    decodes run before prompts that have begun, in vLLM in the order of admission. A prompt
           counts until all of it is computed, cached or not, as in the patch. Not stated: how to
           choose the cap for a model and GPU
Checked    baselines/tests/test_p_pas.py::test_the_cap_holds_while_prompts_compete_by_hand
"""

from collections.abc import Sequence
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import admit, is_decode, run_in_order
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView

_LONE_DECODES = 2
"""P-PAS+ is for one prompt beside at least so many decodes."""


class PPas:
    """Scheduling policy: the order of vLLM, under two token budgets."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        least_prompts: int,
        cap_tokens: int,
        caps_decodes: bool,
        lone_prompt_tokens: int | None,
    ) -> None:
        """`lone_prompt_tokens`: a running prompt that misses as many also is pressure; None: never.

        ValueError for counts below 1, and a rule without chunked prefill.
        """
        counts = {"least_prompts": least_prompts, "cap_tokens": cap_tokens}
        if lone_prompt_tokens is not None:
            counts["lone_prompt_tokens"] = lone_prompt_tokens
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"policy.{name} is {value}, it must be at least 1")
        if not rule.chunked_prefill:
            raise ValueError("policy.rule must have chunked_prefill")
        self._rule, self._least_prompts, self._cap_tokens = rule, least_prompts, cap_tokens
        self._caps_decodes, self._lone_prompt_tokens = caps_decodes, lone_prompt_tokens

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Decodes, prompts that have begun, admissions, the last two under the cap if it holds.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(f"p_pas serves one service, {view.group.id} has {len(view.services)}")
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        decodes = [request for request in holders if is_decode(request)]
        prompts = [request for request in holders if not is_decode(request)]
        budget = cap = self._rule.max_num_batched_tokens
        if self._is_pressed(holders, len(waiting)):
            cap = min(cap, self._cap_tokens)
            budget = cap if self._caps_decodes else budget
        draft = Draft(view)
        victims = [*decodes, *prompts]
        left = run_in_order(draft, decodes, budget=budget, victims=victims, itself=True)
        left = min(left, cap)
        left = run_in_order(draft, prompts, budget=left, victims=victims, itself=True)
        admitted = 0
        if not draft.preempts_any:
            admitted = admit(draft, waiting, self._rule, len(holders), left=left)
        # Newcomers that found no slot or KV find none while the same requests decode.
        stays = not (draft.preempts_any or prompts or admitted)
        return draft.decision(steady=stays and (draft.runs_all or not view.kv.caches))

    def _is_pressed(self, holders: Sequence[RequestView], waiting: int) -> bool:
        """Whether prompts compete, or one is long, while requests decode."""
        missing = [request.facts.prompt_tokens - request.kv_tokens for request in holders]
        prompts = [tokens for tokens in missing if tokens > 0]
        decodes = len(missing) - len(prompts)
        if decodes and len(prompts) + waiting >= self._least_prompts:
            return True
        lone = self._lone_prompt_tokens
        return lone is not None and (
            decodes >= _LONE_DECODES and len(prompts) == 1 and prompts[0] >= lone
        )
