//! Stands for TLS in a build without it: there is none.

use std::net::TcpStream;
use std::path::Path;

use underpass::kernel_tls::Cipher;

use super::options::{TlsLoadOptions, TlsResumption};
use crate::error::{Error, Result};

pub(crate) fn sealing_seconds_per_gib(_: Cipher) -> Option<f64> {
    None
}

#[derive(Debug)]
pub(crate) enum TlsSetup {}

#[derive(Clone, Debug)]
pub(crate) enum TlsClient {}

pub(crate) enum TlsHandshake {}

pub(crate) struct HandshakeOpening {
    pub(crate) hello: Vec<u8>,
    pub(crate) answer_bytes: usize,
}

pub(crate) enum RecordStream {}

impl TlsSetup {
    /// Always an error if TLS is asked for.
    pub(crate) fn make(
        options: &TlsLoadOptions,
        _: TlsResumption,
        _: &Path,
    ) -> Result<Option<Self>> {
        match &options.suite {
            None => Ok(None),
            Some(_) => Err(Error::Setting("this program was built without TLS".into())),
        }
    }

    pub(crate) fn cert(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn key(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn describe(&self) -> String {
        match *self {}
    }

    pub(crate) fn client(&self) -> TlsClient {
        match *self {}
    }
}

impl TlsClient {
    pub(crate) fn resumes(&self) -> bool {
        match *self {}
    }

    pub(crate) fn handshake(&self) -> Result<TlsHandshake> {
        match *self {}
    }
}

impl TlsHandshake {
    pub(crate) fn open(self, _: &TcpStream) -> Result<HandshakeOpening> {
        match self {}
    }

    pub(crate) fn advance(&mut self, _: &TcpStream) -> Result<Option<RecordStream>> {
        match *self {}
    }
}

impl RecordStream {
    pub(crate) const CONTENT_BYTES_MAX: usize = 1;

    pub(crate) fn is_resumed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_drained(&self) -> bool {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _: &[u8]) -> Result<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &TcpStream, _: &mut [u8]) -> Result<usize> {
        match *self {}
    }

    pub(crate) fn discard(&mut self, _: &TcpStream, _: u64, _: &mut [u8]) -> Result<u64> {
        match *self {}
    }

    pub(crate) fn idle(&mut self, _: &TcpStream) -> Result<()> {
        match *self {}
    }

    pub(crate) fn end(&mut self, _: &TcpStream) -> Result<()> {
        match *self {}
    }
}
