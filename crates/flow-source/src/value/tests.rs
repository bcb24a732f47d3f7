//! Values judged by PostgreSQL's own text.

use flow_core::codec::Malformed;
use flow_core::row::{RowBuilder, State, decode};
use flow_core::{Column, TableSchema};

use super::*;

fn schema(column_type: &ColumnType) -> TableSchema {
    TableSchema {
        columns: vec![Column {
            name: "c".to_owned(),
            field_id: 1,
            element_id: None,
            column_type: column_type.clone(),
            required: false,
            source_type: String::new(),
        }],
        key: Vec::new(),
    }
}

fn push(wire: &Wire, target: &Target, column_type: &ColumnType, bytes: &[u8]) -> Result<String, ValueError> {
    let mut row = RowBuilder::new();
    row.start(1);
    let shape = Shape {
        wire,
        target,
        column_type,
    };
    push_binary(&mut row, shape, bytes, &mut Vec::new())?;
    let schema = schema(column_type);
    let columns: Result<_, Malformed> = decode(row.finish(), &schema);
    let columns = columns.expect("own row");
    assert_eq!(columns[0].0, State::Present);
    Ok(match columns[0].1.expect("present") {
        Datum::String(text) => text.to_owned(),
        Datum::Decimal(value) => value.to_string(),
        other => format!("{other:?}"),
    })
}

/// Makes numeric wire bytes.
fn numeric(weight: i16, sign: u16, scale: u16, digits: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [digits.len() as u16, weight as u16, sign, scale].iter().chain(digits) {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

#[test]
fn numerics_are_exact() {
    let check = |bytes: &[u8], text: &str, decimal: Result<i128, ()>| {
        let shown = push(&Wire::Numeric, &Target::Native, &ColumnType::String, bytes);
        assert_eq!(shown.as_deref(), Ok(text));
        let decimal_type = ColumnType::Decimal {
            precision: 10,
            scale: 2,
        };
        let got = push(&Wire::Numeric, &Target::Native, &decimal_type, bytes).map_err(drop);
        assert_eq!(got, decimal.map(|d| d.to_string()), "{text}");
    };
    check(&numeric(0, 0, 0, &[]), "0", Ok(0));
    check(&numeric(0, 0, 2, &[]), "0.00", Ok(0));
    check(&numeric(0, 0x4000, 2, &[1, 5000]), "-1.50", Ok(-150));
    check(&numeric(1, 0, 0, &[7]), "70000", Ok(7_000_000));
    check(&numeric(-1, 0, 4, &[1]), "0.0001", Err(()));
    check(&numeric(-2, 0, 8, &[1234]), "0.00001234", Err(()));
    check(&numeric(-1, 0, 6, &[100]), "0.010000", Ok(1));
    check(&numeric(1, 0, 0, &[9999, 9999]), "99999999", Ok(9_999_999_900));
    check(&numeric(2, 0, 0, &[1]), "100000000", Err(()));
    check(&numeric(0, 0xC000, 0, &[]), "NaN", Err(()));
    check(&numeric(0, 0xD000, 0, &[]), "Infinity", Err(()));
    check(&numeric(0, 0xF000, 0, &[]), "-Infinity", Err(()));
    let bad = push(
        &Wire::Numeric,
        &Target::Native,
        &ColumnType::String,
        &numeric(0, 1, 0, &[]),
    );
    assert_eq!(bad, Err(ValueError::Malformed("numeric")));
    let bad = push(
        &Wire::Numeric,
        &Target::Native,
        &ColumnType::String,
        &numeric(0, 0, 0, &[10_000]),
    );
    assert_eq!(bad, Err(ValueError::Malformed("numeric")));
}

#[test]
fn floats_print_as_postgresql_prints_them() {
    let check = |value: f64, expected: &str| {
        let mut out = Vec::new();
        float::render_double(value, &mut out);
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    };
    for (value, expected) in [
        (1e14, "100000000000000"),
        (1e15, "1e+15"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-1.5e300, "-1.5e+300"),
        (5e-324, "5e-324"),
        (123_456.75, "123456.75"),
        (-0.0, "-0"),
        (f64::NAN, "NaN"),
        // A decimal half way between two doubles, which only rounding to even would return.
        (2.425_172_573_642_42e17, "2.4251725736424198e+17"),
        // Two decimals equally near: the even one.
        (1_421_509_895_634_455.3, "1.4215098956344552e+15"),
        (9_007_199_254_740_992.0, "9.007199254740992e+15"),
    ] {
        check(value, expected);
    }
}

#[test]
fn dates_cross_every_border() {
    let check = |days: i32, expected: &str| {
        let got = push(&Wire::Date, &Target::Text, &ColumnType::String, &days.to_be_bytes());
        assert_eq!(got.as_deref(), Ok(expected));
    };
    check(0, "2000-01-01");
    check(-1, "1999-12-31");
    check(59, "2000-02-29");
    check(-730_119, "0001-01-01");
    check(-730_120, "0001-12-31 BC");
    check(-2_451_507, "4713-01-01 BC");
    check(2_145_031_948, "5874897-12-31");
    check(i32::MAX, "infinity");
}

/// Is a small generator of numbers, so that a failure's seed is all one needs.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit.max(1)
    }

    pub(crate) fn bytes(&mut self, length_max: usize) -> Vec<u8> {
        let length = self.below(length_max);
        // Small values are likelier, since lengths and counts are.
        (0..length)
            .map(|_| {
                if self.below(2) == 0 {
                    self.below(4) as u8
                } else {
                    self.next() as u8
                }
            })
            .collect()
    }
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let scalars = [
        Wire::Bool,
        Wire::Int2,
        Wire::Int4,
        Wire::Int8,
        Wire::Float4,
        Wire::Float8,
        Wire::Numeric,
        Wire::Text,
        Wire::Bpchar,
        Wire::Jsonb,
        Wire::Bytea,
        Wire::Date,
        Wire::Time,
        Wire::Timestamp,
        Wire::Timestamptz,
        Wire::Uuid,
    ];
    let arrays = scalars.iter().map(|wire| Wire::Array(Box::new(wire.clone())));
    let all: Vec<Wire> = scalars.iter().cloned().chain(arrays).collect();
    let mut noise = Noise(0x5eed);
    for round in 0..40_000 {
        let wire = &all[round % all.len()];
        let mut bytes = noise.bytes(80);
        if matches!(wire, Wire::Array(_)) && noise.below(2) == 0 {
            // A head that is right, so that the elements are reached.
            let mut head = vec![
                0,
                0,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                noise.below(4) as u8,
                0,
                0,
                0,
                1,
            ];
            head.append(&mut bytes);
            bytes = head;
        }
        let native = crate::wire_types::default_type(wire, ((20 << 16) | 4) + 4);
        let _ = push(wire, &Target::Native, &native, &bytes);
        let _ = push(wire, &Target::Text, &ColumnType::String, &bytes);
        let mut row = RowBuilder::new();
        row.start(1);
        let shape = Shape {
            wire,
            target: &Target::Native,
            column_type: &native,
        };
        let _ = push_text(&mut row, shape, &bytes);
    }
}
