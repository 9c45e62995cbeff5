//! The programs in Go that are measured beside Underpass.

mod contract;

#[test]
#[ignore = "needs Go; run by cargo xtask test"]
fn porters_move_every_byte_and_go_on_after_a_failure() {
    contract::check_porters(&contract::variants("Go"));
}

#[test]
#[ignore = "needs Go; run by cargo xtask test"]
fn servers_give_every_byte_over_one_connection() {
    contract::check_servers(&contract::variants("Go"));
}
