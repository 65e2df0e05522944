# The few commands of daily work. `just` alone lists them; ./test runs all that must pass.

default:
    @just --list

# What must be clean before a commit: format, lints, unit and property tests, the rules of the tree.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo test --workspace
    cargo xtask tidy

# Everything that CI runs; installs what it needs.
test:
    ./test

# One script of tests/, for instance `just one fetching`; COPALD=/usr/sbin/varnishd runs it against Varnish.
one name:
    cargo build --release
    python3 tests/{{name}}.py

# The corpus of attacks against a fresh copald.
hostile:
    cargo build --release
    conformance/hostile/run

# The suite of cache-tests.fyi against copald with rfc=on, copald as it is, and other caches.
cache-tests:
    cargo build --release
    conformance/cache-tests/run

# The same load on Copal, Varnish, nginx, HAProxy and a bare server (needs a quiet machine with two CPUs).
bench *arguments:
    cargo build --release
    bench/compare.sh target/release/copald {{arguments}}

# Licences, banned crates, sources (needs `cargo install cargo-deny`).
deny:
    cargo deny check licenses bans sources

demo:
    ./demo
