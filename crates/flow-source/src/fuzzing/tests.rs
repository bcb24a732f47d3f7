//! The kept inputs: each passes its entry, and those of every type are made here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::tables::{TYPES, TYPES_FIRST};
use super::*;

/// Is the beginning of a binary COPY: signature, flags, an empty extension.
pub(crate) const COPY_HEAD: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Is its end.
pub(crate) const COPY_END: [u8; 2] = [0xff, 0xff];

/// Is in the package's folder, where cargo runs its tests.
fn folder(name: &str) -> PathBuf {
    PathBuf::from(name)
}

/// Reads the inputs in a folder of the crate, by name.
pub(crate) fn corpus(name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder(name)).expect("the corpus is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "bin") {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            all.insert(name, std::fs::read(&path).expect("readable"));
        }
    }
    all
}

/// Puts each message behind its length.
pub(crate) fn join(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| prefixed(message)).collect()
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// Is two values of a type as its send function makes them.
fn samples(name: &str) -> [Vec<u8>; 2] {
    let numeric = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    match name {
        "bool" => [vec![0], vec![1]],
        "bytea" => [vec![], vec![0, 0xff]],
        "int2" => [vec![0, 7], i16::MIN.to_be_bytes().to_vec()],
        "int4" => [vec![0, 0, 0, 7], i32::MIN.to_be_bytes().to_vec()],
        "int8" => [7i64.to_be_bytes().to_vec(), i64::MIN.to_be_bytes().to_vec()],
        "float4" => [0.1f32.to_be_bytes().to_vec(), f32::NAN.to_be_bytes().to_vec()],
        "float8" => [1e23f64.to_be_bytes().to_vec(), (-0f64).to_be_bytes().to_vec()],
        "text" => [b"NULL".to_vec(), "a \"\\ ü".into()],
        "bpchar" => [b"    ".to_vec(), b"ab  ".to_vec()],
        "jsonb" => [b"\x01{}".to_vec(), b"\x01{\"a\": [1]}".to_vec()],
        "date" => [59i32.to_be_bytes().to_vec(), (-730_120i32).to_be_bytes().to_vec()],
        "time" => [0i64.to_be_bytes().to_vec(), 86_399_999_999i64.to_be_bytes().to_vec()],
        "timestamp" | "timestamptz" => [1i64.to_be_bytes().to_vec(), (-1i64).to_be_bytes().to_vec()],
        // Count of digits, weight, sign, scale, then the digits: 12.5000 and -0.0001.
        "numeric" | "decimal" => [numeric(&[2, 0, 0, 4, 12, 5000]), numeric(&[1, 0xffff, 0x4000, 4, 1])],
        "uuid" => [vec![0; 16], (0xf0..=0xff).collect()],
        other => panic!("no values of {other}"),
    }
}

/// Is an array of both samples and a NULL: a vector, or with two dimensions that begin at 0.
fn array(oid: u32, samples: &[Vec<u8>; 2], vector: bool) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let head = match vector {
        true => words(&[1, 1, oid, 3, 1]),
        false => words(&[2, 1, oid, 3, 0, 1, 0]),
    };
    [head, prefixed(&samples[0]), words(&[u32::MAX]), prefixed(&samples[1])].concat()
}

/// Is two rows of the table of a type: one with each form of a value, one of NULLs.
fn rows(table: &CaptureTable, name: &str, oid: u32) -> [Vec<Option<Vec<u8>>>; 2] {
    let samples = samples(name);
    let value = |column: &str, number: i32| match column {
        "id" => Some(number.to_be_bytes().to_vec()),
        _ if number == 2 => None,
        "list" => Some(array(oid, &samples, true)),
        "list_text" => Some(array(oid, &samples, false)),
        _ => Some(samples[1].clone()),
    };
    [1, 2].map(|number| {
        let columns = table.schema.columns.iter();
        columns.map(|column| value(&column.name, number)).collect()
    })
}

/// Makes a transaction that inserts two rows, and deletes one by its key.
fn stream_of(table: &CaptureTable, rows: &[Vec<Option<Vec<u8>>>; 2]) -> Vec<u8> {
    let count = (table.columns.len() as u16).to_be_bytes();
    let lsn = |lsn: u64| lsn.to_be_bytes().to_vec();
    let mut relation = [b"R", &table.oid.to_be_bytes()[..], b"public\0"].concat();
    relation.extend_from_slice(table.name.name.as_bytes());
    relation.extend_from_slice(&[0, b'd']);
    relation.extend_from_slice(&count);
    for (index, (column, arrives)) in table.schema.columns.iter().zip(&table.columns).enumerate() {
        relation.push(u8::from(index == 0));
        relation.extend_from_slice(column.name.as_bytes());
        relation.push(0);
        relation.extend_from_slice(&arrives.type_oid.to_be_bytes());
        relation.extend_from_slice(&arrives.type_mod.to_be_bytes());
    }
    let field = |value: &Option<Vec<u8>>| match value {
        Some(value) => [b"b".to_vec(), prefixed(value)].concat(),
        None => b"n".to_vec(),
    };
    let change = |kind: u8, tag: u8, row: &[Option<Vec<u8>>]| {
        let head = [&[kind][..], &table.oid.to_be_bytes(), &[tag], &count].concat();
        row.iter().fold(head, |all, value| [all, field(value)].concat())
    };
    join(&[
        [b"B".to_vec(), lsn(100), lsn(5), vec![0, 0, 0, 7]].concat(),
        relation,
        change(b'I', b'N', &rows[0]),
        change(b'I', b'N', &rows[1]),
        change(b'D', b'K', &rows[1]),
        [b"C\0".to_vec(), lsn(100), lsn(110), lsn(6)].concat(),
        [b"k".to_vec(), lsn(120)].concat(),
    ])
}

/// Makes a copy of the same rows, cut into pieces of seven bytes.
fn copy_of(index: usize, rows: &[Vec<Option<Vec<u8>>>; 2]) -> Vec<u8> {
    let mut out = vec![index as u8, 7];
    out.extend_from_slice(COPY_HEAD);
    for row in rows {
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        for value in row {
            match value {
                Some(value) => out.extend(prefixed(value)),
                None => out.extend_from_slice(&[0xff; 4]),
            }
        }
    }
    out.extend_from_slice(&COPY_END);
    out
}

#[test]
fn every_kept_input_passes_its_entry() {
    for bytes in corpus("corpus").values() {
        let _ = check_stream(bytes);
    }
    for bytes in corpus("corpus/copy").values() {
        check_copy(bytes);
    }
}

/// With `FLOW_SOURCE_WRITE_CORPUS` set, writes the inputs instead.
#[test]
fn the_inputs_of_every_type_are_kept_and_decode_whole() {
    let tables = tables();
    let write = std::env::var_os("FLOW_SOURCE_WRITE_CORPUS").is_some();
    for (place, (name, oid, _, _)) in TYPES.iter().enumerate() {
        let index = TYPES_FIRST.0 + place;
        let table = &tables[index];
        let rows = rows(table, name, *oid);
        let (stream, copied) = (stream_of(table, &rows), copy_of(index, &rows));
        for (place, made) in [("corpus", &stream), ("corpus/copy", &copied)] {
            let file = folder(place).join(format!("type-{name}.bin"));
            if write {
                std::fs::write(&file, made).expect("written");
            }
            assert_eq!(&std::fs::read(&file).expect("kept"), made, "{}", file.display());
        }
        assert!(matches!(check_stream(&stream), Ok(0)), "{name}");
        let (rows, end) = copy(table, &copied[2..], 7);
        assert!(end.is_ok(), "{name}: {end:?}");
        assert_eq!(rows.len(), 2, "{name}");
    }
}
