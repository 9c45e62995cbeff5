//! AlterUserScramCredentials. Made by `cargo xtask kafka-tables`.

use crate::protocol::wire::*;

table! {
    pub struct AlterUserScramCredentialsRequest<'a> {
        deletions: Vec<AlterUserScramCredentialsScramCredentialDeletion<'a>> => 0..;
        upsertions: Vec<AlterUserScramCredentialsScramCredentialUpsertion<'a>> => 0..;
    }
}

table! {
    pub struct AlterUserScramCredentialsScramCredentialDeletion<'a> {
        name: &'a str => 0..;
        mechanism: i8 => 0..;
    }
}

table! {
    pub struct AlterUserScramCredentialsScramCredentialUpsertion<'a> {
        name: &'a str => 0..;
        mechanism: i8 => 0..;
        iterations: i32 => 0..;
        salt: &'a [u8] => 0..;
        salted_password: &'a [u8] => 0..;
    }
}
message!(AlterUserScramCredentialsRequest<'a>, Some(51), 0..=0, 0);

table! {
    pub struct AlterUserScramCredentialsResponse<'a> {
        throttle_time_ms: i32 => 0..;
        results: Vec<AlterUserScramCredentialsResult<'a>> => 0..;
    }
}

table! {
    pub struct AlterUserScramCredentialsResult<'a> {
        user: &'a str => 0..;
        error_code: i16 => 0..;
        error_message: Option<&'a str> => 0..;
    }
}
message!(AlterUserScramCredentialsResponse<'a>, Some(51), 0..=0, 0);
