//! The contract of the programs in Java that are compared with Underpass.

use super::contract;

#[test]
#[ignore = "needs a JDK; run by cargo xtask test"]
fn porters_move_every_byte_and_go_on_after_a_failure() {
    contract::check_porters(&contract::variants("Java"));
}
