//! DescribeUserScramCredentials. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct DescribeUserScramCredentialsRequest<'a> {
        users: Option<Vec<DescribeUserScramCredentialsUserName<'a>>> => 0..;
    }
}

table! {
    pub struct DescribeUserScramCredentialsUserName<'a> {
        name: &'a str => 0..;
    }
}
message!(DescribeUserScramCredentialsRequest<'a>, Some(50), 0..=0, 0);

table! {
    pub struct DescribeUserScramCredentialsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        results: Vec<DescribeUserScramCredentialsResult<'a>> => 0..;
    }
}

table! {
    pub struct DescribeUserScramCredentialsResult<'a> {
        user: &'a str => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
        credential_infos: Vec<DescribeUserScramCredentialsResponseCredentialInfo> => 0..;
    }
}

table! {
    pub struct DescribeUserScramCredentialsResponseCredentialInfo {
        mechanism: i8 => 0..;
        iterations: i32 => 0..;
    }
}
message!(DescribeUserScramCredentialsResponse<'a>, Some(50), 0..=0, 0);
