//! Messages of `pgoutput`, protocol version 1, as typed values that borrow the wire's bytes.
//!
//! Pure: no state, no table knowledge. Source: PostgreSQL documentation, "Logical Replication
//! Message Formats".

use flow_core::Lsn;
use flow_core::clock::UnixMicros;

/// Says that bytes are no message; names the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMessage(pub(crate) &'static str);

type Result<T> = std::result::Result<T, BadMessage>;

/// Counts the microseconds from 1970-01-01 to 2000-01-01.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Is one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Begin {
        commit_lsn: Lsn,
        commit_time: UnixMicros,
        xid: u32,
    },
    Commit {
        commit_lsn: Lsn,
        end_lsn: Lsn,
        commit_time: UnixMicros,
    },
    Relation(Relation<'a>),
    Insert {
        oid: u32,
        new: Tuple<'a>,
    },
    Update {
        oid: u32,
        old: Option<OldTuple<'a>>,
        new: Tuple<'a>,
    },
    Delete {
        oid: u32,
        old: OldTuple<'a>,
    },
    Truncate {
        oids: Vec<u32>,
    },
    /// Origin, Type and logical messages: nothing capture needs.
    Other,
}

/// Is an old row: all of it, or its identity only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldTuple<'a> {
    pub(crate) full: bool,
    pub(crate) tuple: Tuple<'a>,
}

/// Is what a table looks like from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation<'a> {
    pub(crate) oid: u32,
    pub(crate) schema: &'a str,
    pub(crate) name: &'a str,
    /// Is the replica identity's letter: d, n, f, i.
    pub(crate) identity: u8,
    pub(crate) columns: Vec<RelationColumn<'a>>,
}

/// Is one column of a relation message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelationColumn<'a> {
    pub(crate) in_identity: bool,
    pub(crate) name: &'a str,
    pub(crate) type_oid: u32,
    pub(crate) type_mod: i32,
}

/// Is a row on the wire: its column count, and the columns still encoded. Checked when made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple<'a> {
    pub(crate) count: usize,
    bytes: &'a [u8],
}

/// Is one column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Null,
    Unchanged,
    Text(&'a [u8]),
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// Walks the columns.
    pub(crate) fn fields(self) -> impl Iterator<Item = Field<'a>> {
        let mut wire = Wire(self.bytes);
        // The tuple was walked once when it was cut, so that each step succeeds.
        (0..self.count).map_while(move |_| wire.field().ok())
    }
}

struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(BadMessage(what))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(u16::from_be_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    fn lsn(&mut self, what: &'static str) -> Result<Lsn> {
        self.array(what).map(u64::from_be_bytes).map(Lsn)
    }

    fn time(&mut self, what: &'static str) -> Result<UnixMicros> {
        let micros = self.array(what).map(i64::from_be_bytes)?;
        micros.checked_add(EPOCH_US).ok_or(BadMessage(what))
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str> {
        let end = self.0.iter().position(|b| *b == 0).ok_or(BadMessage(what))?;
        let text = std::str::from_utf8(&self.0[..end]).map_err(|_| BadMessage(what))?;
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn field(&mut self) -> Result<Field<'a>> {
        let kind = self.u8("column kind")?;
        match kind {
            b'n' => return Ok(Field::Null),
            b'u' => return Ok(Field::Unchanged),
            b't' | b'b' => {}
            _ => return Err(BadMessage("column kind")),
        }
        let length = usize::try_from(self.u32("column length")?).map_err(|_| BadMessage("column length"))?;
        let (value, rest) = self.0.split_at_checked(length).ok_or(BadMessage("column value"))?;
        self.0 = rest;
        Ok(match kind {
            b't' => Field::Text(value),
            _ => Field::Binary(value),
        })
    }

    fn tuple(&mut self) -> Result<Tuple<'a>> {
        let count = usize::from(self.u16("column count")?);
        let bytes = self.0;
        for _ in 0..count {
            self.field()?;
        }
        Ok(Tuple { count, bytes })
    }

    fn new_tuple(&mut self, tag: u8) -> Result<Tuple<'a>> {
        match tag {
            b'N' => self.tuple(),
            _ => Err(BadMessage("new row")),
        }
    }

    fn old_tuple(&mut self, tag: u8) -> Result<OldTuple<'a>> {
        let full = match tag {
            b'O' => true,
            b'K' => false,
            _ => return Err(BadMessage("old row")),
        };
        Ok(OldTuple {
            full,
            tuple: self.tuple()?,
        })
    }

    fn relation(&mut self) -> Result<Relation<'a>> {
        let oid = self.u32("relation oid")?;
        let schema = match self.text("relation schema")? {
            // The protocol's way of saving bytes.
            "" => "pg_catalog",
            schema => schema,
        };
        let name = self.text("relation name")?;
        let identity = self.u8("replica identity")?;
        let count = self.u16("relation columns")?;
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push(RelationColumn {
                in_identity: self.u8("column flags")? & 1 == 1,
                name: self.text("column name")?,
                type_oid: self.u32("column type")?,
                type_mod: self.array("column type modifier").map(i32::from_be_bytes)?,
            });
        }
        Ok(Relation {
            oid,
            schema,
            name,
            identity,
            columns,
        })
    }

    fn truncate(&mut self) -> Result<Message<'a>> {
        let count = self.u32("truncate count")?;
        self.u8("truncate options")?;
        let mut oids = Vec::new();
        for _ in 0..count {
            oids.push(self.u32("truncated relation")?);
        }
        Ok(Message::Truncate { oids })
    }
}

/// Reads one message; every byte must belong to it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Message<'_>> {
    let mut wire = Wire(bytes);
    let message = match wire.u8("message type")? {
        b'B' => Message::Begin {
            commit_lsn: wire.lsn("begin lsn")?,
            commit_time: wire.time("begin time")?,
            xid: wire.u32("begin xid")?,
        },
        b'C' => {
            wire.u8("commit flags")?;
            Message::Commit {
                commit_lsn: wire.lsn("commit lsn")?,
                end_lsn: wire.lsn("commit end")?,
                commit_time: wire.time("commit time")?,
            }
        }
        b'R' => Message::Relation(wire.relation()?),
        b'I' => {
            let oid = wire.u32("insert oid")?;
            let tag = wire.u8("row tag")?;
            Message::Insert {
                oid,
                new: wire.new_tuple(tag)?,
            }
        }
        b'U' => {
            let oid = wire.u32("update oid")?;
            let mut tag = wire.u8("row tag")?;
            let mut old = None;
            if tag != b'N' {
                old = Some(wire.old_tuple(tag)?);
                tag = wire.u8("row tag")?;
            }
            Message::Update {
                oid,
                old,
                new: wire.new_tuple(tag)?,
            }
        }
        b'D' => {
            let oid = wire.u32("delete oid")?;
            let tag = wire.u8("row tag")?;
            Message::Delete {
                oid,
                old: wire.old_tuple(tag)?,
            }
        }
        b'T' => wire.truncate()?,
        b'O' | b'Y' | b'M' => return Ok(Message::Other),
        _ => return Err(BadMessage("message type")),
    };
    match wire.0 {
        [] => Ok(message),
        _ => Err(BadMessage("message end")),
    }
}
