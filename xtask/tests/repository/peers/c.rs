//! The contract of the programs in C that are compared with Underpass.

use super::contract;

#[test]
#[ignore = "needs gcc; run by cargo xtask test"]
fn porters_move_every_byte_and_go_on_after_a_failure() {
    contract::check_porters(&contract::variants("C"));
}
