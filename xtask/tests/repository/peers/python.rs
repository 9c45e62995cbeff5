//! The contract of the programs in Python that are compared with Underpass.

use super::contract;

#[test]
#[ignore = "needs python3; run by cargo xtask test"]
fn porters_move_every_byte_and_go_on_after_a_failure() {
    contract::check_porters(&contract::variants("Python"));
}
