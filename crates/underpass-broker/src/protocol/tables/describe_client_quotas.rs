//! DescribeClientQuotas. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeClientQuotasRequest<'a> {
        components: Vec<DescribeClientQuotasComponentData<'a>> => 0..;
        strict: bool => 0..;
    }
}

table! {
    pub struct DescribeClientQuotasComponentData<'a> {
        entity_type: &'a str => 0..;
        match_type: i8 => 0..;
        matched: Option<&'a str> => 0..;
    }
}
message!(DescribeClientQuotasRequest<'a>, Some(48), 0..=1, 1);

table! {
    pub struct DescribeClientQuotasResponse<'a> {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        entries: Option<Vec<DescribeClientQuotasResponseEntryData<'a>>> => 0..;
    }
}

table! {
    pub struct DescribeClientQuotasResponseEntryData<'a> {
        entity: Vec<DescribeClientQuotasResponseEntityData<'a>> => 0..;
        values: Vec<DescribeClientQuotasResponseValueData<'a>> => 0..;
    }
}

table! {
    pub struct DescribeClientQuotasResponseEntityData<'a> {
        entity_type: &'a str => 0..;
        entity_name: Option<&'a str> => 0..;
    }
}

table! {
    pub struct DescribeClientQuotasResponseValueData<'a> {
        key: &'a str => 0..;
        value: f64 => 0..;
    }
}
message!(DescribeClientQuotasResponse<'a>, Some(48), 0..=1, 1);
