# `just --list` shows what there is; every recipe runs through `./justw` where just is not installed.

set positional-arguments := true

# The pinned uv of pipelines/setup.
export UV := justfile_directory() / ".tools/bin/uv"

# Cargo shows its progress until these have been compiled here: the first command takes minutes.
quiet := `ls "${CARGO_TARGET_DIR:-target}"/debug/pybench >/dev/null 2>&1 && echo --quiet || true`
quiet_train := `ls "${CARGO_TARGET_DIR:-target}"/debug/pybench-train >/dev/null 2>&1 && echo --quiet || true`
quiet_xet := `ls "${CARGO_TARGET_DIR:-target}"/debug/pybench-xet >/dev/null 2>&1 && echo --quiet || true`

# The client of Temporal, where `just cluster up` has started its server.
temporal := `grep -qs '^\[temporal\]' data/cluster/cluster.toml && echo '--features temporal' || true`

# The program, and nothing that it does not need.
pybench := "cargo run " + quiet + " -p pybench " + temporal + " --"

# Everything there is, as lint and test compile it: one selection, so that no library is compiled for two sets of features.
# `cas` is Hugging Face's own store of chunks, for tests. `temporal` is the executor on Temporal.
all := '--workspace --features pybench-xet/cas,pybench/temporal'

# The export to OpenTelemetry; the program has it only with this feature.
otel := all + ',pybench/otel'

# One test at a time, those that CI leaves out too.
soak_cluster := "cargo test --quiet " + all + " --test runs -- --nocapture --include-ignored --test-threads 1"

attack := "cargo test --quiet -p pybench-interpreter-containers --test sessions attack"

# Before a number of milliseconds: how long each fuzz target runs.
fuzz_for := "BOLERO_RANDOM_ITERATIONS=1000000000 BOLERO_RANDOM_TEST_TIME_MS="

# The list of skipped tests.
skips := env("TMPDIR", "/tmp") / "pybench-skips." + uuid()

# Of each test program, of which one per processor runs: some tests wait for a time limit or for a process, most compute.
test_threads := `echo $(($(nproc) + 1))`

_help:
    @just --justfile '{{ justfile() }}' --list

# Set this machine up: tools and the Python environment of the sandbox; `tests`: also what tests need. Quiet when nothing is to do.
[group('set-up')]
setup *WHAT:
    @pipelines/setup "$@"

# What this machine can do: tiers of isolation, limits, and what is missing, with what it costs.
[group('set-up')]
doctor *ARGS:
    @{{ pybench }} doctor "$@"

# Start and end PostgreSQL on this machine, for runs whose journal is kept there (docs/cluster.md): up, status, down. `up --all` starts an S3 server and Temporal too.
[group('set-up')]
cluster *ARGS: setup
    @{{ pybench }} cluster "$@"

# Make a dataset: crawl, query, rollout, grade, shard. RECIPE is a file or the name of one in pipelines/recipes/.
[group('make data')]
synthesize *ARGS: setup
    @{{ pybench }} synthesize "$@"

# Only the tasks of a run; `--export FILE` and `--import FILE` take them out for review and back.
[group('make data')]
query *ARGS: setup
    @{{ pybench }} query "$@"

# The task library: list, show, new, coverage, export to others' trainers, serve-rewards; each with --help.
[group('make data')]
library *ARGS: setup
    @{{ pybench }} library "$@"

# The funnel of a run, its cost, its time, and what failed and why.
[group('look at data')]
status *ARGS:
    @{{ pybench }} status "$@"

# One trajectory as a person reads it, or as a notebook; without its number, the list. RUN is a run, a dataset or a file.
[group('look at data')]
show *ARGS:
    @{{ pybench }} show "$@"

# Runs and datasets in the browser: lists, filters, search, each trajectory with its verdict. WHAT is a run, a dataset (also on the Hub or S3) or a log of inspect_ai; without it, all runs (docs/studio.md).
[group('look at data')]
studio *ARGS: setup
    @{{ pybench }} studio "$@"

# The paper's table of a dataset: instructions, turns, tokens; `--plots FOLDER` draws them.
[group('look at data')]
stats *ARGS:
    @{{ pybench }} stats "$@"

# Work on a whole dataset: dedup, decontaminate, select, export, convert; each with --help.
[group('look at data')]
dataset *ARGS:
    @{{ pybench }} dataset "$@"

# Re-execute a sample of a dataset's rows and compare. DATASET is a folder, the name of a run, or OWNER/NAME on the Hub.
[group('look at data')]
verify *ARGS: setup
    @{{ pybench }} verify "$@"

# Put a dataset or a model on the Hugging Face Hub, private and as one commit. Without --yes it prints what would be sent. WHAT is a folder or the name of a run.
[group('share')]
publish *ARGS:
    @case " $* " in *' --yes '*) cargo build {{ quiet_xet }} -p pybench-xet --features program || echo 'publish: pybench-xet could not be built; changed files are sent whole, not in chunks (docs/publishing.md)' >&2;; esac
    @{{ pybench }} publish "$@"

# Pack the program and the trainer as two wheels that `pip` and `uv` install (release build: half an hour of compiler time).
[group('share')]
wheel *ARGS:
    @src/cli/wheel --profile wheel "$@"
    @training/wheel --profile wheel "$@"

# Fine-tune a model on the shards of `just synthesize`, which are made first where they are missing. RECIPE is a file or the name of one in training/recipes/.
[group('train and evaluate')]
train *ARGS: setup
    @training/setup
    @[ -e data/runs/quickstart/dataset ] || {{ just_executable() }} synthesize
    @cargo run {{ quiet_train }} -p pybench-training -- run "$@"

# Let a student learn from its own attempts and their corrections, in rounds. RECIPE is a file with a section [loop] (docs/loop.md).
[group('train and evaluate')]
loop *ARGS: setup
    @training/setup
    @cargo build {{ quiet_train }} -p pybench-training
    @{{ pybench }} loop "$@"

# Talk with a model that has a Python interpreter: an agent of a recipe, an endpoint, a model folder or a GGUF file; without any, the newest checkpoint (docs/chat.md).
[group('train and evaluate')]
chat *ARGS: setup
    @{{ pybench }} chat "$@"

# Evaluate agents on PyBench (where its files are) and on the held-out tasks of the library: three scores side by side, a report. Without RECIPE the quickstart's dataset is made first where it is missing. RECIPE is a file or the name of one in pipelines/recipes/eval/.
[group('train and evaluate')]
eval *ARGS: setup
    @[ $# -gt 0 ] || [ -e data/runs/quickstart/dataset ] || {{ just_executable() }} synthesize
    @{{ pybench }} eval "$@"

# Serve a model to OpenAI's clients: by vLLM where it is installed, by our own server otherwise. MODEL is a directory or a name of training/models.toml.
[group('train and evaluate')]
serve MODEL="data/runs/smollm2/model" *ARGS: setup
    @training/setup
    @cargo build {{ quiet_train }} -p pybench-training
    @model=${1:-data/runs/smollm2/model}; [ $# -eq 0 ] || shift; exec "${CARGO_TARGET_DIR:-target}/debug/pybench-train" serve "$model" --engine auto "$@"

# Build the engine of GGUF models (llama.cpp, some minutes once), for agents of the kind `gguf` and teachers of the kind `embedded`; `test` tests it.
[group('train and evaluate')]
embedded *ARGS: setup
    @embedded/build "$@"

# Compare the trainer live with transformers (a full PyTorch in a venv of its own, 4.6 GB).
[group('train and evaluate')]
parity: setup
    @training/setup
    @training/parity/run

# Everything that CI checks.
[group('check')]
test *ARGS: (setup "tests") lint
    @: >"{{ skips }}"
    @cargo build {{ quiet_train }} {{ all }}
    @[ -z "${PYBENCH_REQUIRE_ALL:-}" ] || { embedded/build build && PYBENCH_SKIPS="{{ skips }}" embedded/build test; }
    @PYBENCH_SKIPS="{{ skips }}" RUST_TEST_THREADS="${RUST_TEST_THREADS:-{{ test_threads }}}" {{ fuzz_for }}300 .ci/tests {{ all }} "$@"; ended=$?; pipelines/skips "{{ skips }}"; exit $ended

# Formatting and clippy, warnings refused; module cycles; licenses and bans, where cargo-deny is installed.
[group('check')]
lint:
    @cargo fmt --check
    @.ci/cycles
    @.ci/features
    @training/setup
    @cargo clippy {{ quiet_train }} {{ all }} --all-targets -- -D warnings
    @if command -v cargo-deny >/dev/null; then cargo deny --workspace --all-features --log-level error check licenses bans sources; fi

# Test what distributes runs by Temporal, against a real server (docs/temporal.md); `test` includes it.
[group('check')]
temporal: setup
    @cargo test --quiet {{ all }} --test temporal
    @cargo test --quiet {{ all }} --test runs -- on_temporal

# Check and test the export to OpenTelemetry, against a server that decodes it (docs/telemetry.md).
[group('check')]
otel *ARGS:
    @cargo clippy --quiet {{ otel }} --bin pybench --test otel -- -D warnings
    @cargo test --quiet {{ otel }} --test otel "$@"

# The full proofs, of which `test` takes samples: every template of the library, and in a container; PyBench's strict score, also on regenerated inputs; charts; training of SmolLM2.
[group('check')]
audit: setup
    @{{ pybench }} library audit --record pipelines/library/audited.toml --matrix docs/requirement-matrix.md
    @cargo test --quiet -p pybench-checks --test checker -- --ignored --nocapture
    @cargo test --quiet -p pybench --test data -- --ignored --nocapture every_template_in_a_container
    @training/setup
    @cargo test --quiet -p pybench-training --test training -- --ignored smollm2
    @{{ pybench }} eval audit --json docs/eval-audit.json --markdown docs/eval-audit.md
    @{{ pybench }} eval audit --regenerate 7 --run audit-regenerated --markdown docs/eval-audit-regenerated.md

# Audit the scores of benchmarks beside PyBench, each of which is downloaded if it is not here: references pass, agents without a solution and wrong answers fail. Writes docs/suite-audits/; what was interrupted goes on. Without SUITES, all (docs/suites.md).
[group('check')]
audit-suites *SUITES: setup
    @[ $# -gt 0 ] || set -- pybench-regenerated wikitablequestions da-dev da-dev-verified qrdata m3tooleval mint humaneval humaneval-plus mbpp mbpp-plus gsm8k mmlu; \
        ended=0; for suite in "$@"; do \
            echo "$suite"; \
            { [ -n "${PYBENCH_SUITES:-}" ] || {{ pybench }} eval fetch --suite "$suite"; } && {{ pybench }} eval audit --suite "$suite" --write || ended=1; \
        done; exit $ended

# Attempts to break out of the sandbox, each with a name; `--random SECONDS`: random system calls, new ones each time.
[group('check')]
attack *ARGS: setup
    @case "${1:-}" in \
        --random) PYBENCH_ATTACK_SECONDS="${2:?SECONDS}" PYBENCH_ATTACK_SEED="${PYBENCH_ATTACK_SEED:-$(date +%s)}" {{ attack }}::jail::random -- --nocapture ;; \
        *) {{ attack }} "$@" ;; \
    esac

# A thousand sessions, 64 at a time, while sessions, servers and hosts are killed; a run that is killed 40 times. `cluster [SECONDS [SEED]]`: runs on Temporal with three workers while servers fail and processes are killed, again and again; before them the quickstart with three workers, a budget with eight, a worker of another version, and bad units.
[group('check')]
soak *ARGS: setup
    @case "${1:-}" in \
        cluster) export SOAK_SECONDS="${2:-1800}" SOAK_SEED="${3:-$(date +%s)}"; \
            {{ soak_cluster }} on_temporal workers_keep_the_budget bad_units && {{ soak_cluster }} random_faults_change_nothing ;; \
        "") SOAK_SESSIONS=1000 SOAK_IN_FLIGHT=64 cargo test --quiet -p pybench-interpreter-containers --test soak && \
            SOAK_KILLS=40 cargo test --quiet -p pybench --test runs kills_change_nothing ;; \
        *) echo "soak: $1 is neither nothing nor cluster" >&2; exit 2 ;; \
    esac

# Fuzz every parser of bytes from outside for SECONDS each.
[group('check')]
fuzz SECONDS="60":
    @{{ fuzz_for }}$(({{ SECONDS }} * 1000)) cargo test --quiet fuzz_

# Time WHAT (interpreter, eval, data, cluster, studio, render, train, serve, agents, rollout-vllm, llama) against what people use today, in one run; `scale` measures how memory and time grow with a run, `cluster-model` computes what a cluster of 1,000 workers would do, `teach TABLE` what a small model learns; `task-set` makes a dataset of WikiTableQuestions' training split without a model.
[group('check')]
bench WHAT *ARGS: setup
    @what=$1; shift; package=; \
        if [ -e "training/benches/$what.rs" ]; then training/setup; package='-p pybench-training'; fi; \
        if [ -x "training/benches/$what" ]; then training/setup; exec "training/benches/$what" "$@"; fi; \
        if [ -f "benches/$what" ] && [ -x "benches/$what" ]; then exec "benches/$what" "$@"; fi; \
        case " $* " in *' --temporal '*) package='-p pybench-synthesize --features temporal';; esac; \
        cargo run --quiet $package --example "bench-$what" -- "$@"

# Write the JSON Schema of recipes again.
[group('maintain')]
schema:
    @UPDATE_SCHEMA=1 cargo test --quiet -p pybench-run --lib schema

# Write the fingerprints of the benchmarks again: of PyBench from its files (data/ of a checkout) in FOLDER, of the others
# from what `pybench eval fetch --suite NAME` downloaded.
[group('maintain')]
fingerprints FOLDER="../shared/pybench/data":
    @[ -d "$1" ] || { echo "fingerprints: there is no folder $1 with PyBench's meta/task.json; give one"; exit 1; }
    @{{ pybench }} dataset fingerprint "$1" --name pybench --out datasets/src/decontaminate/pybench.fingerprints
    @for suite in wikitablequestions da-dev qrdata m3tooleval mint humaneval mbpp gsm8k mmlu; do \
        {{ pybench }} eval fingerprint --suite "$suite" --out "datasets/src/decontaminate/$suite.fingerprints" || exit 1; done

# Lock the Python requirements again, with hashes.
[group('maintain')]
lock: setup
    @cd src/interpreter/python && ../../../.tools/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate --no-emit-index-url requirements.in --output-file requirements.lock
    @src/testing/environments/make lock

# Delete the runs; downloads and completions in data/cache stay.
[group('maintain')]
clean-runs:
    @rm -rf data/runs
