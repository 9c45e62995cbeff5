//! The contract of the programs in Go that are compared with Underpass.

use std::sync::LazyLock;

use super::contract;

/// Compiled once, since a program that runs in one test must not be overwritten by another.
static VARIANTS: LazyLock<Vec<contract::Variant>> = LazyLock::new(|| contract::variants("Go"));

#[test]
#[ignore = "needs Go; run by cargo xtask test"]
fn porters_move_every_byte_and_go_on_after_a_failure() {
    contract::check_porters(&VARIANTS);
}

#[test]
#[ignore = "needs Go; run by cargo xtask test"]
fn servers_give_every_byte_over_one_connection() {
    contract::check_servers(&VARIANTS);
}
