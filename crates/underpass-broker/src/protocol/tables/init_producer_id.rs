//! InitProducerId. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct InitProducerIdRequest<'a> {
        transactional_id: Option<&'a str> => 0..;
        transaction_timeout_ms: i32 => 0..;
        producer_id: i64 => 3.., or -1;
        producer_epoch: i16 => 3.., or -1;
        enable2_pc: bool => 6..;
        keep_prepared_txn: bool => 6..;
    }
}
message!(InitProducerIdRequest<'a>, Some(22), 0..=6, 2);

table! {
    pub struct InitProducerIdResponse {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        producer_id: i64 => 0.., or -1;
        producer_epoch: i16 => 0..;
        ongoing_txn_producer_id: i64 => 6.., or -1;
        ongoing_txn_producer_epoch: i16 => 6.., or -1;
    }
}
message!(InitProducerIdResponse, Some(22), 0..=6, 2);
