# `just --list` shows what there is; every recipe runs through `./justw` where just is not installed.

set positional-arguments := true

# The pinned uv of pipelines/setup.
export UV := justfile_directory() / ".tools/bin/uv"

# Cargo shows its progress until these have been compiled here: the first command takes minutes.
quiet := `ls "${CARGO_TARGET_DIR:-target}"/debug/deps/libpybench_pipelines-*.rlib >/dev/null 2>&1 && echo --quiet || true`
quiet_train := `ls "${CARGO_TARGET_DIR:-target}"/debug/pybench-train >/dev/null 2>&1 && echo --quiet || true`
quiet_xet := `ls "${CARGO_TARGET_DIR:-target}"/debug/pybench-xet >/dev/null 2>&1 && echo --quiet || true`

# What is compiled with the trainer, whose libraries it shares; `cas` is Hugging Face's own store of chunks, for tests.
trainer := '-p pybench-training -p pybench-xet --features pybench-xet/cas'

# Before a number of milliseconds: how long each fuzz target runs.
fuzz_for := "BOLERO_RANDOM_ITERATIONS=1000000000 BOLERO_RANDOM_TEST_TIME_MS="

_help:
    @just --justfile '{{ justfile() }}' --list

# Set this machine up: tools and the Python environment of the sandbox. Quiet when nothing is to do.
setup:
    @pipelines/setup

# Make a dataset: crawl, query, rollout, grade, shard. RECIPE is a file or the name of one in pipelines/recipes/.
synthesize *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-synthesize -- "$@"

# The tasks of a run alone; `--export FILE` and `--import FILE` take them out for review and back.
query *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-query -- "$@"

# The funnel of a run, its cost, its time, and what failed and why.
status *ARGS:
    @cargo run {{ quiet }} --bin pybench-status -- "$@"

# Whether the rows of a dataset are what they say: hashes of all, and cells, files and checks of a sample run again. DATASET is a folder, the name of a run, or OWNER/NAME on the Hub.
verify *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-verify -- "$@"

# Put a dataset or a model onto the Hugging Face Hub, private and as one commit. Without --yes it prints what would be sent. WHAT is a folder or the name of a run.
publish *ARGS:
    @case " $* " in *' --yes '*) cargo build {{ quiet_xet }} -p pybench-xet --features program || echo 'publish: pybench-xet could not be built; changed files go whole, not in chunks (docs/publishing.md)' >&2;; esac
    @cargo run {{ quiet }} --bin pybench-publish -- "$@"

# Work on a whole dataset: dedup, decontaminate, select, export, convert; each with --help.
dataset *ARGS:
    @cargo run {{ quiet }} --bin pybench-dataset -- "$@"

# One trajectory as a person reads it, or as a notebook; without its number, the list. RUN is a run, a dataset or a file.
show *ARGS:
    @cargo run {{ quiet }} --bin pybench-show -- "$@"

# The paper's table of a dataset: instructions, turns, tokens; `--plots FOLDER` draws them.
stats *ARGS:
    @cargo run {{ quiet }} --bin pybench-stats -- "$@"

# The task library: list, show, new, coverage, export to others' trainers, serve-rewards; each with --help.
library *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-library -- "$@"

# Prove every template of the task library: the expert passes, wrong answers fail.
library-audit *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-library -- audit "$@"

# Fine-tune a model on the shards of `just synthesize`, which are made first where they are missing. RECIPE is a file or the name of one in training/recipes/.
train *ARGS: setup
    @training/setup
    @[ -e data/runs/quickstart/dataset ] || {{ just_executable() }} synthesize
    @cargo run {{ quiet_train }} -p pybench-training -- run "$@"

# Evaluate agents on PyBench (where its files are) and on the held-out tasks of the library: three scores side by side, a report. RECIPE is a file or the name of one in pipelines/recipes/eval/.
eval *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-eval -- "$@"

# Prove the strict score of PyBench, which `pybench-eval fetch` gets: right solutions pass, idle agents and wrong solutions fail. The table goes to docs/.
eval-audit *ARGS: setup
    @cargo run {{ quiet }} --bin pybench-eval -- audit --json docs/eval-audit.json --markdown docs/eval-audit.md "$@"

# Serve a model to OpenAI's clients: by vLLM where it is installed, by our own server otherwise. MODEL is a directory or a name of training/models.toml.
serve MODEL="data/runs/smollm2/model" *ARGS: setup
    @training/setup
    @cargo build {{ quiet_train }} -p pybench-training
    @model=${1:-data/runs/smollm2/model}; [ $# -eq 0 ] || shift; exec "${CARGO_TARGET_DIR:-target}/debug/pybench-train" serve "$model" --engine auto "$@"

# Build the engine of GGUF models (llama.cpp, some minutes once), for agents of the kind `gguf` and teachers of the kind `embedded`; `test` tests it.
embedded *ARGS: setup
    @embedded/build "$@"

# Compare the trainer live with transformers (a full PyTorch in a venv of its own, 4.6 GB).
parity: setup
    @training/setup
    @training/parity/run

# Everything that CI checks.
test *ARGS: setup lint
    @cargo build {{ quiet_train }} {{ trainer }}
    @{{ fuzz_for }}10000 cargo test --no-fail-fast "$@"
    @{{ fuzz_for }}10000 cargo test --no-fail-fast {{ trainer }} "$@"

# Formatting and clippy, warnings refused; licences and bans, where cargo-deny is installed.
lint:
    @cargo fmt --check
    @cargo clippy {{ quiet }} --all-targets -- -D warnings
    @training/setup
    @cargo clippy {{ quiet_train }} --all-targets {{ trainer }} -- -D warnings
    @if command -v cargo-deny >/dev/null; then cargo deny --workspace --all-features --log-level error check licenses bans sources; fi

# What this machine can do: tiers of isolation, limits, and what is missing, with what it costs.
doctor *ARGS:
    @cargo run {{ quiet }} --bin pybench-doctor -- "$@"

# Attempts to break out of the sandbox, each a test.
attack: setup
    @cargo test --quiet --test attack

# A thousand sessions, 64 at a time, while sessions, servers and hosts are killed.
soak: setup
    @SOAK_SESSIONS=1000 SOAK_IN_FLIGHT=64 cargo test --quiet --test soak

# Time WHAT (interpreter, eval, data, render, train) against what people use today, in one run.
bench WHAT *ARGS: setup
    @what=$1; shift; package=; \
        if [ -e "training/benches/$what.rs" ]; then training/setup; package='-p pybench-training'; fi; \
        if [ -x "training/benches/$what" ]; then training/setup; exec "training/benches/$what" "$@"; fi; \
        cargo run --quiet $package --example "bench-$what" -- "$@"

# Fuzz every parser of bytes from outside for SECONDS each.
fuzz SECONDS="60":
    @{{ fuzz_for }}$(({{ SECONDS }} * 1000)) cargo test --quiet fuzz_

# Write the JSON Schema of recipes anew.
schema:
    @UPDATE_SCHEMA=1 cargo test --quiet --lib schema

# Lock the Python requirements anew, with hashes.
lock: setup
    @cd src/interpreter/python && ../../../.tools/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate --no-emit-index-url requirements.in --output-file requirements.lock

# Delete the runs; downloads and completions in data/cache stay.
clean-runs:
    @rm -rf data/runs
