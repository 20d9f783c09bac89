#!/usr/bin/env bash
# One function for each stage of scripts/test, which runs `stages.sh STAGE [FILTER]` and knows what comes when.
# With DEEP=1 in the environment a stage does all it can do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/packages.sh
export PATH="$PWD/target/tools/bin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
deep=${DEEP:-0}

install() {
  bring "${tests_tools[@]}"
  python
  promtool
  if command -v rustup >/dev/null; then
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
  fi
}

# The foreign client of tests/e2e/foreign.rs: Python's gRPC, apart from the system's packages.
python() {
  local packages=(grpcio==1.85.1 grpcio-tools==1.85.1)
  ! target/python/bin/python3 -c 'import grpc, grpc_tools' 2>/dev/null || return 0
  rm -rf target/python
  # Debian keeps the module that makes these in a package of its own.
  python3 -c 'import ensurepip' 2>/dev/null || { apt update && apt install --no-install-recommends -y python3-venv; }
  python3 -m venv target/python
  target/python/bin/pip --quiet --disable-pip-version-check install --retries 3 --only-binary :all: "${packages[@]}"
}

# Prometheus's checker, out of the package: the daemon that comes with it is not installed.
promtool() {
  local tool=target/tools/bin/promtool dir
  [[ ! -x $tool ]] || return 0
  dir=$(mktemp -d)
  download "$dir" prometheus
  mkdir -p target/tools/bin
  dpkg-deb --fsys-tarfile "$dir"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$tool.new"
  rm -rf "$dir"
  chmod 755 "$tool.new" && mv "$tool.new" "$tool"
}

# What the machine of the stage vm boots, made while the compiler runs: it waits for the disk and the mirror.
images() { scripts/vm-test --prepare "$(machines)"; }

# Everything that the stages below run, in one go and of one set of dependencies.
build() {
  cargo test --no-run
  cargo build --features mutation --example taskman-mutant --example taskman-server-mutant
}

fmt() { cargo fmt --check; }

# All that there is, and then what the first command of the README builds, which is less.
clippy() {
  cargo clippy --all-targets --all-features -- -D warnings
  cargo clippy --bin taskman -- -D warnings
}

deny() {
  # An unoptimised build: it takes about a quarter of the time, and checks no slower that anyone would notice.
  # From another directory: this project's build settings are not cargo-deny's.
  command -v cargo-deny >/dev/null ||
    (tools=$PWD/target/tools && cd / && cargo install --quiet --locked --no-default-features --profile dev --root "$tools" cargo-deny)
  cargo deny --log-level error --all-features check bans licenses sources
}

# What operators load into Prometheus and Grafana: each rule is sound and fires when it should, each panel asks what can be asked.
deploy() {
  promtool
  local tool=target/tools/bin/promtool queries
  "$tool" check rules deploy/alerts.yml
  "$tool" test rules deploy/alerts_test.yml
  queries=$(mktemp --suffix .yml)
  python3 - >"$queries" <<'END'
import json
panels = json.load(open("deploy/grafana-dashboard.json"))["panels"]
queries = [target["expr"] for panel in panels for target in panel.get("targets", [])]
# JSON is YAML.
rules = [{"record": f"panel:query{number}", "expr": query} for number, query in enumerate(queries)]
print(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
END
  "$tool" check rules "$queries"
  rm "$queries"
}

unit() { cargo test --lib --bins -- "$@"; }
doc() { cargo test --doc -- "$@"; }
tree() {
  local file tests=()
  for file in tests/*.rs; do tests+=(--test "$(basename "$file" .rs)"); done
  cargo test --no-fail-fast "${tests[@]}" -- "$@"
}
# Most tests wait most of the time: for a process, a timer, a disk.
e2e() {
  # The program that a test of the library runs.
  cargo build --example library
  cargo test --test e2e -- --test-threads 6 "$@"
}
launcher() { cargo test --test launcher -- "$@"; }
container() { cargo test --test container -- "$@"; }
faults() { cargo test --test faults -- "$@"; }
adversarial() { cargo test --test adversarial -- "$@"; }
# In sandboxes that were built before their command was known.
warm() { TASKMAN_ADV_MODE=warm cargo test --test adversarial -- "$@"; }

machines() { if ((deep)); then echo all; else echo slice; fi; }
vm() { scripts/vm-test "${1:-$(machines)}"; }

# As a newcomer has it, but for what cargo has downloaded: this is the only build without the server.
first() {
  rm -rf target/first
  git clone --quiet . target/first
  local said
  said=$(cd target/first && env -u CARGO_TARGET_DIR cargo run --release -- run -- echo hello)
  rm -rf target/first
  [[ $said == hello ]] || { echo "the README's first command said: $said" && false; }
}

# Ratios to the peers, beside those in benches/baseline.json: a worse one is named and fails nothing.
bench() { timeout 1800 scripts/bench --quick; }

# On one line with its end: bash reads a script while it runs, and this one may be edited meanwhile.
"$@"; exit
