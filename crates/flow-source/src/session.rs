//! An own session with the server, framed by hand: for replication and for COPY, where the bytes
//! are many and go straight to the decoder.
//!
//! Owns startup, authentication, simple queries and the read buffer. Knows no message of the
//! replication stream. What it reads is input: lengths are checked and the buffer grows only as
//! bytes arrive.

use std::io;

use bytes::{BufMut, BytesMut};
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::conninfo::ConnInfo;
use crate::error::{ServerError, SourceError};
use crate::options::SourceOptions;
use crate::transport::{self, Transport};

/// Is the largest message accepted, in bytes: PostgreSQL's own limit for one datum and one message.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Is how much is asked of the socket at once, in bytes: large enough that system calls do not count.
const READ_BYTES: usize = 256 * 1024;

/// Gathers bytes and cuts them into messages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Frames {
    /// Is the next whole message, its tag and payload; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`SourceError::Protocol`] for an impossible length.
    pub(crate) fn next(&mut self) -> Result<Option<(u8, &[u8])>, SourceError> {
        let buffered = &self.bytes[self.start..self.end];
        let Some((head, rest)) = buffered.split_first_chunk::<5>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(SourceError::Protocol("message length".to_owned()));
        }
        match rest.get(..length - 4) {
            None => Ok(None),
            Some(payload) => {
                self.start += length + 1;
                Ok(Some((head[0], payload)))
            }
        }
    }

    /// Reads more bytes. Cancel-safe.
    pub(crate) async fn fill(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        // A rest that a huge message left room for is moved to the front; the buffer grows only
        // when a message really fills it, and shrinks after it.
        if self.bytes.len() - self.end < READ_BYTES / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let wanted = (self.end * 2).max(READ_BYTES);
            if self.bytes.len() < wanted {
                self.bytes.resize(wanted, 0);
            } else if self.bytes.len() > 8 * READ_BYTES && self.end < READ_BYTES {
                self.bytes.truncate(2 * READ_BYTES);
                self.bytes.shrink_to_fit();
            }
        }
        match reader.read(&mut self.bytes[self.end..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

/// Says what kind of session is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SQL only.
    Plain,
    /// Replication commands and SQL, in the database.
    Replication,
}

/// Is a logged-in session.
#[derive(Debug)]
pub(crate) struct Session {
    transport: Transport,
    frames: Frames,
    info: ConnInfo,
}

/// Is a row of a simple query: columns as text.
pub(crate) type TextRow = Vec<Option<String>>;

/// Opens and logs in.
///
/// # Errors
/// Unreachable and not ready (retry); login and TLS (reconfigure).
pub(crate) async fn open(options: &SourceOptions, kind: Kind) -> Result<Session, SourceError> {
    let transport = transport::open(options).await?;
    let info = options.conninfo.clone();
    let mut session = Session {
        transport,
        frames: Frames::default(),
        info,
    };
    match tokio::time::timeout(options.connect_timeout, session.log_in(kind)).await {
        Ok(result) => result.map(|()| session),
        Err(_) => Err(transport::unreachable(
            &options.conninfo,
            io::ErrorKind::TimedOut.into(),
        )),
    }
}

impl Session {
    async fn log_in(&mut self, kind: Kind) -> Result<(), SourceError> {
        let mut out = BytesMut::new();
        let mut parameters = vec![
            ("user", self.info.user.as_str()),
            ("database", self.info.dbname.as_str()),
            ("application_name", self.info.application_name.as_str()),
            ("client_encoding", "UTF8"),
        ];
        if let Some(options) = &self.info.options {
            parameters.push(("options", options));
        }
        if kind == Kind::Replication {
            parameters.push(("replication", "database"));
        }
        frontend::startup_message(parameters, &mut out).map_err(unsendable)?;
        self.send(&out).await?;
        let mut scram: Option<sasl::ScramSha256> = None;
        loop {
            let (tag, payload) = self.message().await?;
            match tag {
                b'R' => {
                    if let Some(reply) = answer(&self.info, &mut scram, &payload)? {
                        self.send(&reply).await?;
                    }
                }
                b'E' => return Err(SourceError::from_login(server_error(&payload))),
                b'Z' => return Ok(()),
                b'S' | b'K' | b'N' | b'v' => {}
                _ => return Err(SourceError::Protocol("message during login".to_owned())),
            }
        }
    }

    /// Takes one message, copied.
    async fn message(&mut self) -> Result<(u8, Vec<u8>), SourceError> {
        loop {
            if let Some((tag, payload)) = self.frames.next()? {
                return Ok((tag, payload.to_vec()));
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), SourceError> {
        let result = self.frames.fill(&mut self.transport).await;
        result.map_err(|error| transport::unreachable(&self.info, error))
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), SourceError> {
        let write = async {
            self.transport.write_all(bytes).await?;
            self.transport.flush().await
        };
        write.await.map_err(|error| transport::unreachable(&self.info, error))
    }

    /// Runs a simple query and gathers its rows.
    ///
    /// # Errors
    /// [`SourceError::Sql`]; the session stays usable after it.
    pub(crate) async fn query(&mut self, operation: &'static str, sql: &str) -> Result<Vec<TextRow>, SourceError> {
        self.start(sql).await?;
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let (tag, payload) = self.message().await?;
            match tag {
                b'D' => rows.push(text_row(&payload)?),
                b'E' => {
                    let error = server_error(&payload);
                    failure = Some(SourceError::Sql { operation, error });
                }
                b'Z' => return failure.map_or(Ok(rows), Err),
                b'T' | b'C' | b'I' | b'N' | b'S' => {}
                _ => return Err(SourceError::Protocol("answer to a query".to_owned())),
            }
        }
    }

    async fn start(&mut self, sql: &str) -> Result<(), SourceError> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(unsendable)?;
        self.send(&out).await
    }

    /// Runs a `COPY … TO STDOUT` and hands each piece of data on; ends when the copy is whole.
    ///
    /// # Errors
    /// The callback's error at once, which leaves the session spent.
    pub(crate) async fn copy_out<E: From<SourceError>>(
        &mut self,
        sql: &str,
        mut on_data: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.start(sql).await?;
        let mut failure = None;
        loop {
            while let Some((tag, payload)) = self.frames.next()? {
                match tag {
                    b'd' => on_data(payload)?,
                    b'E' => {
                        failure = Some(SourceError::Sql {
                            operation: "copying a table",
                            error: server_error(payload),
                        });
                    }
                    b'Z' => return failure.map_or(Ok(()), |error| Err(error.into())),
                    b'H' | b'c' | b'C' | b'N' | b'S' => {}
                    _ => return Err(SourceError::Protocol("answer to COPY".to_owned()).into()),
                }
            }
            self.fill().await?;
        }
    }

    /// Runs `START_REPLICATION`; after it, the session is taken apart with [`Session::split`].
    ///
    /// # Errors
    /// [`SourceError::Sql`] if the server refuses.
    pub(crate) async fn start_copy_both(&mut self, sql: &str) -> Result<(), SourceError> {
        self.start(sql).await?;
        loop {
            let (tag, payload) = self.message().await?;
            match tag {
                b'W' => return Ok(()),
                b'E' => {
                    return Err(SourceError::Sql {
                        operation: "starting replication",
                        error: server_error(&payload),
                    });
                }
                b'N' | b'S' => {}
                _ => return Err(SourceError::Protocol("answer to START_REPLICATION".to_owned())),
            }
        }
    }

    /// Gives the transport and what was already read from it.
    pub(crate) fn split(self) -> (Transport, Frames) {
        (self.transport, self.frames)
    }
}

/// Frames one CopyData message.
pub(crate) async fn send_copy_data(writer: &mut (impl AsyncWrite + Unpin), payload: &[u8]) -> io::Result<()> {
    let mut out = BytesMut::with_capacity(payload.len() + 5);
    out.put_u8(b'd');
    out.put_u32(payload.len() as u32 + 4);
    out.put_slice(payload);
    writer.write_all(&out).await?;
    writer.flush().await
}

fn unsendable(error: io::Error) -> SourceError {
    SourceError::ConnInfo(error.to_string())
}

/// Answers an authentication request; `None` if nothing is to be sent.
fn answer(
    info: &ConnInfo,
    scram: &mut Option<sasl::ScramSha256>,
    payload: &[u8],
) -> Result<Option<BytesMut>, SourceError> {
    let bad = || SourceError::Protocol("authentication request".to_owned());
    let (code, rest) = payload.split_first_chunk::<4>().ok_or_else(bad)?;
    let password = || match &info.password {
        Some(password) => Ok(password.as_bytes()),
        None => Err(SourceError::Login(
            "a password is required and none is given".to_owned(),
        )),
    };
    let refused = |error: io::Error| SourceError::Login(error.to_string());
    let mut out = BytesMut::new();
    match u32::from_be_bytes(*code) {
        0 => return Ok(None),
        3 => frontend::password_message(password()?, &mut out).map_err(unsendable)?,
        5 => {
            let salt: [u8; 4] = rest.try_into().map_err(|_| bad())?;
            let hash = md5_hash(info.user.as_bytes(), password()?, salt);
            frontend::password_message(hash.as_bytes(), &mut out).map_err(unsendable)?;
        }
        10 => {
            if !rest
                .split(|b| *b == 0)
                .any(|name| name == sasl::SCRAM_SHA_256.as_bytes())
            {
                return Err(SourceError::Login(
                    "the server offers no supported SASL mechanism".to_owned(),
                ));
            }
            let client = sasl::ScramSha256::new(password()?, sasl::ChannelBinding::unsupported());
            frontend::sasl_initial_response(sasl::SCRAM_SHA_256, client.message(), &mut out).map_err(unsendable)?;
            *scram = Some(client);
        }
        11 => {
            let client = scram.as_mut().ok_or_else(bad)?;
            client.update(rest).map_err(refused)?;
            frontend::sasl_response(client.message(), &mut out).map_err(unsendable)?;
        }
        12 => {
            scram.as_mut().ok_or_else(bad)?.finish(rest).map_err(refused)?;
            return Ok(None);
        }
        _ => {
            return Err(SourceError::Login(
                "the server asks for an authentication that is not supported".to_owned(),
            ));
        }
    }
    Ok(Some(out))
}

/// Reads an ErrorResponse; the detail is left out, since it may hold row values.
pub(crate) fn server_error(payload: &[u8]) -> ServerError {
    let mut error = ServerError {
        sqlstate: "XX000".to_owned(),
        message: "unknown error".to_owned(),
    };
    for field in payload.split(|b| *b == 0) {
        match field.split_first() {
            Some((b'C', text)) => error.sqlstate = String::from_utf8_lossy(text).into_owned(),
            Some((b'M', text)) => error.message = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    error
}

fn text_row(payload: &[u8]) -> Result<TextRow, SourceError> {
    let bad = || SourceError::Protocol("row of a query".to_owned());
    let (count, mut rest) = payload.split_first_chunk::<2>().ok_or_else(bad)?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            row.push(None);
            rest = after;
            continue;
        }
        let length = usize::try_from(length).map_err(|_| bad())?;
        let (value, after) = after.split_at_checked(length).ok_or_else(bad)?;
        row.push(Some(String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_cut_however_the_bytes_arrive() {
        let mut wire = Vec::new();
        for length in [0usize, 1, 300, 200_000] {
            wire.push(b'd');
            wire.extend_from_slice(&(length as u32 + 4).to_be_bytes());
            wire.resize(wire.len() + length, 7);
        }
        for step in [1, 7, 4096, usize::MAX] {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in wire.chunks(step.min(wire.len())) {
                let mut piece = piece;
                while !piece.is_empty() {
                    frames.fill(&mut piece).await.expect("bytes are there");
                    while let Some((tag, payload)) = frames.next().expect("well-formed") {
                        got.push((tag, payload.len()));
                    }
                }
            }
            assert_eq!(got, [(b'd', 0), (b'd', 1), (b'd', 300), (b'd', 200_000)], "step {step}");
        }
    }

    #[tokio::test]
    async fn impossible_lengths_are_errors() {
        for length in [0u32, 3, u32::MAX] {
            let mut wire = vec![b'd'];
            wire.extend_from_slice(&length.to_be_bytes());
            let mut frames = Frames::default();
            frames.fill(&mut wire.as_slice()).await.expect("bytes are there");
            assert!(frames.next().is_err(), "{length}");
        }
    }
}
