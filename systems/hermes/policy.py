"""Hermes: applications by the Gittins rank of the demand that they have left, or by slack.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       Recorded runs say how much service an application of a kind may need. When a unit of it
           starts, what is known of that unit and the one before narrows this. The application with
           the lowest Gittins rank for the service it has attained runs first; with deadlines, the
           one with the least slack in the worst case.
Map        3.2 PDGraph, walks, refinement  -> systems/hermes/pdgraph.py; `graphs`
           3.3 eq. 1, eq. 2                -> systems/hermes/rank.py; `objective`
           3.3 refresh per bucket          -> `Demand`, asked again on events and every `renew_s`
Constants  1,000 samples and walks, 10 buckets, correlation 0.5 (sections 3.2, 5.1). The paper does
           not state seconds per token (its program: 1e-4 and 0.06), `renew_s`, `displaces` and the
           batch rule: see scenarios/policy/hermes_gittins.yaml
Differs    graphs come from the history alone, not from what is observed during the run. Service of
           parallel calls is summed up, as in its program. Of units side by side, the latest to
           start says what is left. `program` ranks as its program does: by its formula and the
           recorded totals, without refinement. Without a deadline an application comes behind those
           that have one, by Gittins rank. With `late_last`, which the paper does not have,
           applications past their deadline come behind all others: by eq. 2 they come first.
           `oracle` ranks by the true demand left, which a predictor tells (section 5.3)
Checked    systems/tests/test_hermes_policy.py
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import GroupId
from harness.interface.events import AppArrived, AppFinished, Event, UnitStarted
from harness.interface.policies import Capability
from harness.interface.tables import Floats, Ints, RequestTable
from harness.interface.views import GroupView
from harness.planning.application_history import ApplicationHistory
from harness.planning.attained import OBSERVED, Attained
from systems.hermes.pdgraph import NO_UPSTREAM, PdGraph, Settings, graph_of, upstream_of
from systems.hermes.rank import Demand, Demands

_OBJECTIVES = ("gittins", "program", "mean", "slack", "mean_slack", "oracle")
_BEHIND = 1e9
"""Added to keys that come behind others: more seconds than any run or rank has."""


class Hermes:
    """Scheduling policy: a priority order of applications."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = OBSERVED

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        objective: str,
        graphs: Settings,
        displaces: str | None,
        late_last: bool,
        renew_s: float | None,
        applications: ApplicationHistory | None = None,
    ) -> None:
        """Rank by `objective`: gittins, program, mean, slack, mean_slack or oracle.

        `displaces`: pause, recompute, swap, or None, where the order is one of admission. Keys are
        asked again every `renew_s`; None: on events alone. ValueError for another word.
        """
        if objective not in _OBJECTIVES:
            raise ValueError(
                f"policy.objective is {objective}, not one of {', '.join(_OBJECTIVES)}"
            )
        self._objective, self._late_last, self._now_s = objective, late_last, 0.0
        self._settings = graphs
        self._refines = graphs.refines and objective not in ("program", "oracle")
        how = None if displaces is None else Displaced(displaces)
        needs = {Capability.SWAP: how is Displaced.SWAP}
        needs[Capability.PREDICTIONS] = objective == "oracle"
        self.requires = frozenset(
            capability for capability, is_needed in needs.items() if is_needed
        )
        self._attained = Attained(
            prompt_token_s=graphs.prompt_token_s, output_token_s=graphs.output_token_s
        )
        runs = {} if applications is None else applications.runs
        self._graphs = {kind: graph_of(tuple(map(tuple, runs[kind])), graphs) for kind in runs}
        self._whole = {kind: self._demand(graph) for kind, graph in self._graphs.items()}
        self._left = Demands(buckets=graphs.buckets, is_program=objective == "program")
        self._order = PriorityOrder(None, rule, how, renews=True, renew_s=renew_s)
        self._decisions: dict[GroupId, Decision] = {}

    def observe(self, event: Event) -> None:
        """Estimate what an application has left when a unit of it starts.

        Raises ValueError for a kind of application without recorded runs, and for an oracle that
        is not told what applications demand.
        """
        self._attained.observe(event)
        self._now_s = event.now_s
        if isinstance(event, AppArrived):
            self._left.add(event.app, event.deadline_s)
            self._left.set(event.app, self._demand_of(event))
        elif isinstance(event, UnitStarted) and self._refines:
            app = self._attained.apps[event.app]
            upstream = NO_UPSTREAM
            if app.upstream is not None:
                upstream = upstream_of(app.upstream.prompt_tokens, app.upstream.output_tokens)
            left_s = self._graphs[app.kind].left_s(event.unit, event.prompt_tokens, upstream)
            self._left.set(event.app, Demand(left_s, buckets=self._settings.buckets))
        elif isinstance(event, AppFinished):
            self._left.remove(event.app)

    def schedule(self, view: GroupView) -> Decision:
        """The priority order of each group, which stands."""
        group = view.group.id
        if group not in self._decisions:
            order = replace(self._order, key=partial(self._key, group))
            self._decisions[group] = Decision(priority_order=order)
        return self._decisions[group]

    def _demand_of(self, event: AppArrived) -> Demand:
        """Of a whole application, which arrives."""
        if self._objective != "oracle":
            if event.kind not in self._graphs:
                raise ValueError(f"applications of kind {event.kind} have no recorded run")
            return self._whole[event.kind]
        if event.predicted is None:
            raise ValueError(
                "policy.objective is oracle and no predictor says what applications demand; "
                "predictor=application_oracle does"
            )
        prompts_s = event.predicted.prompt_tokens * self._settings.prompt_token_s
        outputs_s = event.predicted.output_tokens * self._settings.output_token_s
        total_s = prompts_s + outputs_s + event.predicted.external_s
        return Demand(np.array([total_s]), buckets=self._settings.buckets)

    def _demand(self, graph: PdGraph) -> Demand:
        """Of a whole application, by recorded runs."""
        is_program = self._objective == "program"
        samples_s = graph.recorded_s if is_program else graph.whole_s
        return Demand(samples_s, buckets=self._settings.buckets, is_program=is_program)

    def _key(self, group: GroupId, table: RequestTable) -> Floats:
        """The rank of each request's application; requests of none are ordered by arrival."""
        self._attained.look(group, table)
        attained_s = self._attained.attained_s(group, table.app, in_unit=self._refines)
        self._left.cover(int(table.app.max()))
        key = self._ranks(table.app, attained_s)
        return np.where(np.isnan(key), table.arrival_s, key)

    def _ranks(self, apps: Ints, attained_s: Floats) -> Floats:
        left = self._left
        if self._objective in ("mean", "oracle"):
            return left.mean_left_s(apps, attained_s)
        ranks = left.gittins(apps, attained_s)
        if self._objective in ("gittins", "program"):
            return ranks
        deadline_s = left.deadline_s(apps)
        slack_s = left.slack_s(apps, attained_s, is_worst=self._objective == "slack")
        found = np.where(np.isnan(deadline_s), _BEHIND + ranks, slack_s)
        if self._late_last:
            found = np.where(deadline_s < self._now_s, 2 * _BEHIND + deadline_s, found)
        return found
