# `just --list` shows what there is; every recipe runs through `./justw` where just is not installed.

set positional-arguments := true

# The pinned uv of pipelines/setup.
export UV := justfile_directory() / ".tools/bin/uv"

_help:
    @just --justfile '{{ justfile() }}' --list

# Set this machine up: tools and the Python environment of the sandbox. Quiet when nothing is to do.
setup:
    @pipelines/setup

# Make a dataset: crawl, query, rollout, grade, shard. RECIPE is a file or the name of one in pipelines/recipes/.
synthesize *ARGS: setup
    @cargo run --quiet --bin pybench-synthesize -- "$@"

# The funnel of a run, its cost, its time, and what failed and why.
status *ARGS:
    @cargo run --quiet --bin pybench-status -- "$@"

# Prove every template of the task library: the expert passes, wrong answers fail.
library-audit *ARGS: setup
    @cargo run --quiet --bin pybench-library -- audit "$@"

# Everything that CI checks.
test *ARGS: setup lint
    @cargo test --no-fail-fast "$@"

# Formatting and clippy, warnings refused.
lint:
    @cargo fmt --check
    @cargo clippy --quiet --all-targets -- -D warnings

# Attempts to break out of the sandbox, each a test.
attack: setup
    @cargo test --quiet --test attack

# 1,000 sessions of 5 cells, 64 at a time, while processes are killed at random; nothing may leak.
soak SESSIONS="1000" IN_FLIGHT="64": setup
    @SESSIONS={{ SESSIONS }} IN_FLIGHT={{ IN_FLIGHT }} cargo test --quiet --test soak -- --nocapture

# Measure: `just bench interpreter` against nbclient with ipykernel and against a cold Python per cell.
bench WHAT *ARGS: setup
    @benches/{{ WHAT }}/run "$@"

# Fuzz every parser of bytes from outside for SECONDS each.
fuzz SECONDS="60":
    @BOLERO_RANDOM_TEST_TIME_MS=$(({{ SECONDS }} * 1000)) BOLERO_RANDOM_ITERATIONS=1000000000 cargo test --quiet fuzz_

# Write the JSON Schema of recipes anew.
schema:
    @UPDATE_SCHEMA=1 cargo test --quiet --lib schema

# Lock the Python requirements anew, with hashes.
lock: setup
    @cd src/interpreter/python && ../../../.tools/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate --no-emit-index-url requirements.in --output-file requirements.lock

# Delete the runs; downloads and completions in data/cache stay.
clean-runs:
    @rm -rf data/runs
