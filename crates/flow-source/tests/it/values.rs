//! Every type at its extremes: the same bytes from copy and stream, and PostgreSQL's own answer.

use std::collections::BTreeMap;

use flow_core::row::decode;
use flow_core::transaction::{Change, Old};
use flow_core::{Lsn, TableId, TableName};
use flow_source::{CaptureTable, SourceError, TableRequest, create_slot, open_copy_session};

use crate::harness::*;

/// Holds type, SQL that shows a value as the test does, and values.
type Case = (&'static str, &'static str, &'static [&'static str]);

const MICROS: &str = "trunc(extract(epoch FROM c) * 1000000)::text";

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("boolean", "c::text", &["true", "false"]),
    ("smallint", "c::text", &["-32768", "32767", "0"]),
    ("integer", "c::text", &["-2147483648", "2147483647"]),
    ("bigint", "c::text", &["-9223372036854775808", "9223372036854775807"]),
    ("real", "encode(float4send(c), 'hex')",
        &["-0", "1e-45", "3.4028235e38", "NaN", "Infinity", "-Infinity", "0.1", "123456.7", "1234567", "1e-4", "1.5e-5", "16777216"]),
    ("double precision", "encode(float8send(c), 'hex')",
        &["-0", "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity", "0.1", "123456789012345", "1234567890123456", "0.0001", "0.00001", "1e15", "1e14"]),
    ("numeric(38,0)", "c::text", &["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "0", "70"]),
    ("numeric(38,38)", "trunc(c * 1e38)::text", &["0.99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001"]),
    ("numeric(12,4)", "trunc(c * 10000)::text", &["12345678.9", "-0.0001", "0", "10000", "1.2345"]),
    ("numeric(6,5)", "trunc(c * 100000)::text", &["1.00001", "-9.99999"]),
    ("numeric", "c::text",
        &["0", "0.0", "-0.0100", "1e-20", "10000", "123456789012345678901234567890.12345678901234567890", "NaN", "1e300", "0.00010000", "99999999.0000", "1e-16383", "7e37"]),
    ("numeric(50,10)", "c::text", &["1234567890123456789012345678901234567890.5", "-1"]),
    ("text", "c", &["", "ü\u{10348}'\"\\", " x ", "NULL", "\n\t"]),
    ("varchar(10)", "c", &["abc", "abc  "]),
    ("char(5)", "rpad(c::text, 5)", &["ab", "", "üä"]),
    ("name", "c::text", &["Some Name"]),
    ("json", "c::text", &["{\"a\" : [1,  2.50]}", "null", "\"\\u00fc\""]),
    ("jsonb", "c::text", &["{\"b\":1,\"a\":[1,2.50,null]}", "null"]),
    ("uuid", "replace(c::text, '-', '')", &["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "01234567-89ab-cdef-0123-456789abcdef"]),
    ("bytea", "encode(c, 'hex')", &["", "\\x00ff", "\\xdeadbeef"]),
    ("date", "(c - date '1970-01-01')::text", &["4713-01-01 BC", "5874897-12-31", "1970-01-01", "1969-12-31", "0001-01-01", "0001-12-31 BC", "2000-02-29", "20231-01-01"]),
    ("time", "c::text", &["00:00", "24:00", "23:59:59.999999", "12:34:56.7", "01:02:03.04005"]),
    ("time(3)", "c::text", &["12:34:56.7891"]),
    ("timestamp", MICROS, &["4713-01-01 00:00 BC", "294246-12-31 23:59:59.999999", "1970-01-01", "1969-12-31 23:59:59.999999", "2000-01-01 00:00:00.1", "0044-03-15 12:00 BC"]),
    ("timestamptz", MICROS, &["4713-01-01 00:00 BC", "294246-12-31 23:59:59+00", "1970-01-01 02:00+02", "2024-02-29 12:34:56.789+05:30"]),
    ("timestamp(0)", MICROS, &["2024-01-01 00:00:00.6"]),
    ("mood", "c::text", &["happy", "très, \"sad\""]),
    ("price", "trunc(c * 100)::text", &["1.50", "0"]),
    ("price2", "trunc(c * 100)::text", &["2.50"]),
    ("mood_domain", "c::text", &["happy"]),
    ("int_list", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{1,NULL,-3}"]),
    ("integer[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{}", "{1}", "{NULL,2147483647}"]),
    ("text[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{}", "{\"\",\"a,b\",NULL,\"NULL\",null,\"q\\\"\\\\\",\"{}\",\" \"}"]),
    ("boolean[]", "replace(replace('[' || array_to_string(c, '|', 'NULL') || ']', 't', 'true'), 'f', 'false')", &["{t,f,NULL}"]),
    ("numeric[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{1.50,NaN,NULL,1e30}"]),
    ("numeric(6,2)[]", "'[' || array_to_string(ARRAY(SELECT trunc(x * 100) FROM unnest(c) x), '|', 'NULL') || ']'", &["{1.50,NULL,-0.01}"]),
    ("time[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{12:00,24:00}"]),
    ("jsonb[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{\"{\\\"a\\\": 1}\",NULL}"]),
    ("mood[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{happy}"]),
    ("price[]", "'[' || array_to_string(ARRAY(SELECT trunc(x * 100) FROM unnest(c) x), '|', 'NULL') || ']'", &["{1.25,NULL}"]),
    ("uuid[]", "'[' || replace(array_to_string(c, '|', 'NULL'), '-', '') || ']'", &["{01234567-89ab-cdef-0123-456789abcdef,NULL}"]),
    ("bytea[]", "'[' || array_to_string(ARRAY(SELECT encode(x, 'hex') FROM unnest(c) x), '|', 'NULL') || ']'", &["{\"\\\\x00ff\",NULL}"]),
    ("date[]", "'[' || array_to_string(ARRAY(SELECT x - date '1970-01-01' FROM unnest(c) x), '|', 'NULL') || ']'", &["{1970-01-02,NULL}"]),
    ("char(3)[]", "'[' || array_to_string(c, '|', 'NULL') || ']'", &["{a,NULL}"]),
    ("timestamptz[]", "'[' || array_to_string(ARRAY(SELECT trunc(extract(epoch FROM x) * 1000000) FROM unnest(c) x), '|', 'NULL') || ']'", &["{1970-01-01 00:00:01+00}"]),
];

/// Values that fit only as text.
#[rustfmt::skip]
const TEXT_ONLY: &[(&str, &[&str])] = &[
    ("date", &["infinity", "-infinity"]),
    ("timestamp", &["infinity", "-infinity", "294276-12-31 23:59:59.999999"]),
    ("timestamptz", &["infinity", "-infinity", "294276-12-31 23:59:59.999999+00"]),
    ("integer[]", &["{{1,2},{3,NULL}}", "[0:1]={1,2}", "[-1:0][2:2]={{1},{2}}", "{{{1}},{{2}}}"]),
    ("text[]", &["{{\"a b\",\"\"},{nUlL,\"\\\\\"}}", "{\"\u{b}x\"}"]),
    ("boolean[]", &["{{t},{f}}"]),
    ("timestamptz[]", &["{\"2024-01-01 00:00:00+00\",infinity}"]),
    ("real[]", &["{1e10,0.5,NaN}"]),
    ("char(3)[]", &["{a,\"b c\"}"]),
];

const TYPES: &str = "CREATE TYPE mood AS ENUM ('happy', 'très, \"sad\"');
    CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE >= 0);
    CREATE DOMAIN price2 AS price; CREATE DOMAIN mood_domain AS mood; CREATE DOMAIN int_list AS int[];
    CREATE SCHEMA other; CREATE TYPE other.mood AS ENUM ('not this')";

async fn make_table(client: &tokio_postgres::Client, name: &str, column_type: &str, values: &[&str]) {
    exec(
        client,
        &format!("CREATE TABLE {name} (id int PRIMARY KEY, c {column_type})"),
    )
    .await;
    exec(client, &format!("ALTER TABLE {name} REPLICA IDENTITY FULL")).await;
    for (id, value) in values.iter().enumerate() {
        let value = value.replace('\'', "''");
        exec(client, &format!("INSERT INTO {name} VALUES ({id}, '{value}')")).await;
    }
    exec(client, &format!("INSERT INTO {name} VALUES (-1, NULL)")).await;
}

/// Copies a table and gives its rows by id.
async fn copy_rows(
    options: &flow_source::SourceOptions,
    table: &CaptureTable,
    snapshot: &str,
) -> Result<BTreeMap<i32, Vec<u8>>, SourceError> {
    let mut session = open_copy_session(options, snapshot).await?;
    let mut rows = BTreeMap::new();
    let count = session
        .copy(table, |mut row| -> Result<(), SourceError> {
            let row = encoded(&mut row)?;
            let columns = decode(&row, &table.schema)?;
            let Some(flow_core::row::Datum::Int(id)) = columns[0].1 else {
                panic!("an id")
            };
            drop(columns);
            rows.insert(id, row);
            Ok(())
        })
        .await?;
    assert_eq!(count, rows.len() as u64);
    Ok(rows)
}

async fn answers(client: &tokio_postgres::Client, table: &str, shown: &str) -> BTreeMap<i32, String> {
    exec(client, "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'").await;
    // NULL first: an expression over its elements would make an empty list of a NULL one.
    let sql = format!("SELECT id, CASE WHEN c IS NOT NULL THEN {shown} END FROM {table}");
    let rows = client.query(&sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    let shown = |row: &tokio_postgres::Row| match row.get::<_, Option<String>>(1) {
        Some(text) => shorten(&text),
        None => "null".to_owned(),
    };
    rows.iter().map(|row| (row.get(0), shown(row))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_is_the_same_from_copy_and_stream_and_as_postgresql_has_it() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, TYPES).await;
        let mut requests = Vec::new();
        for (index, (column_type, _, values)) in CASES.iter().enumerate() {
            make_table(&client, &format!("t{index}"), column_type, values).await;
            exec(&client, &format!("CREATE TABLE s{index} (LIKE t{index} INCLUDING ALL)")).await;
            exec(&client, &format!("ALTER TABLE s{index} REPLICA IDENTITY FULL")).await;
            requests.extend([request(&format!("t{index}")), request(&format!("s{index}"))]);
        }
        flow_source::create_publication(&options, &requests)
            .await
            .expect("a publication");
        let snapshot = create_slot(&options, None).await.expect("a slot");
        let tables = capture(&options, &requests, snapshot.consistent_point).await;
        let mut stream = flow_source::Stream::connect(&options, snapshot.consistent_point, tables.clone())
            .await
            .expect("a stream");
        for (index, (column_type, shown, _)) in CASES.iter().enumerate() {
            let table = &tables[index * 2];
            let copied = copy_rows(&options, table, &snapshot.name).await.expect(column_type);
            let expected = answers(&client, &format!("t{index}"), shown).await;
            for (id, row) in &copied {
                let want = format!("id={id} c={}", expected[id]);
                assert_eq!(show(row, &table.schema), want, "{version}: {column_type}");
            }
            assert_eq!(copied.len(), expected.len());
            // The same values through the stream: as new rows, and as the old rows of what follows.
            exec(&client, &format!("INSERT INTO s{index} SELECT * FROM t{index}")).await;
            exec(&client, &format!("UPDATE s{index} SET id = id")).await;
            exec(&client, &format!("DELETE FROM s{index}")).await;
            for round in ["insert", "update", "delete"] {
                let transaction = next_change(&mut stream).await;
                assert_eq!(transaction.changes.len(), copied.len(), "{column_type} {round}");
                for change in &transaction.changes {
                    let rows: Vec<&[u8]> = match change {
                        Change::Insert { new, .. } => vec![new],
                        Change::Update {
                            old: Old::Full(old),
                            new,
                            ..
                        } => vec![old, new],
                        Change::Delete {
                            old: Old::Full(old), ..
                        } => vec![old],
                        other => panic!("{column_type}: {other:?}"),
                    };
                    for row in rows {
                        assert!(
                            copied.values().any(|c| c == row),
                            "{column_type} {round}: {}",
                            show(row, &table.schema)
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_by_choice_is_postgresqls_own() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, TYPES).await;
        let mut requests = Vec::new();
        let all = CASES.iter().map(|(t, _, v)| (*t, *v)).chain(TEXT_ONLY.iter().copied());
        for (index, (column_type, values)) in all.clone().enumerate() {
            make_table(&client, &format!("t{index}"), column_type, values).await;
            let mut request = request(&format!("t{index}"));
            request.types.insert("c".to_owned(), "string".to_owned());
            requests.push(request);
        }
        // Many more dates than anyone would list.
        let many = "CREATE TABLE many (id int PRIMARY KEY, c timestamptz);
             INSERT INTO many SELECT i, '4713-01-01 00:00+00 BC'::timestamptz + i * interval '1151 days 7 hours 13.000017 seconds'
             FROM generate_series(0, 90000) i;
             CREATE TABLE floats (id int PRIMARY KEY, c float8);
             INSERT INTO floats SELECT i, (random() - 0.5) * 10 ^ (random() * 60 - 30) FROM generate_series(0, 20000) i;
             CREATE TABLE singles (id int PRIMARY KEY, c real);
             INSERT INTO singles SELECT i, (random() - 0.5) * 10 ^ (random() * 40 - 20) FROM generate_series(0, 20000) i";
        exec(&client, many).await;
        let mut names: Vec<String> = (0..requests.len()).map(|i| format!("t{i}")).collect();
        for name in ["many", "floats", "singles"] {
            let mut request = request(name);
            request.types.insert("c".to_owned(), "string".to_owned());
            requests.push(request);
            names.push(name.to_owned());
        }
        flow_source::create_publication(&options, &requests)
            .await
            .expect("a publication");
        let snapshot = create_slot(&options, None).await.expect("a slot");
        let tables = capture(&options, &requests, Lsn::ZERO).await;
        for (name, table) in names.iter().zip(&tables) {
            let copied = copy_rows(&options, table, &snapshot.name).await.expect(name);
            let expected = answers(&client, name, "c::text").await;
            assert_eq!(copied.len(), expected.len());
            for (id, row) in &copied {
                let want = format!("id={id} c={}", expected[id]);
                let got = show(row, &table.schema);
                assert_eq!(got, want, "{version}: {name} {}", table.schema.columns[1].source_type);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_do_not_fit_block_their_table_only() {
    let cases: &[(&str, Option<&str>, &str, &str)] = &[
        ("numeric(10,2)", None, "NaN", "NaN or infinity"),
        ("date", None, "infinity", "infinite date"),
        ("timestamp", None, "-infinity", "infinite timestamp"),
        ("timestamptz", None, "294276-12-31 23:59:59+00", "past the range"),
        ("integer[]", None, "{{1,2}}", "several dimensions"),
        ("integer[]", None, "[0:0]={1}", "lower bound"),
        ("numeric", Some("decimal(5,2)"), "1.234", "after the point"),
        ("numeric", Some("decimal(5,2)"), "1000", "more digits"),
        ("numeric", Some("decimal(38,9)"), "NaN", "NaN"),
        ("time", Some("time"), "24:00", "24:00:00"),
    ];
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        let mut requests = vec![request("good")];
        exec(&client, "CREATE TABLE good (id int PRIMARY KEY)").await;
        for (index, (column_type, choice, ..)) in cases.iter().enumerate() {
            exec(
                &client,
                &format!("CREATE TABLE t{index} (id int PRIMARY KEY, c {column_type})"),
            )
            .await;
            let mut request = TableRequest::new(TableName::new("public", format!("t{index}")));
            if let Some(choice) = choice {
                request.types.insert("c".to_owned(), (*choice).to_owned());
            }
            requests.push(request);
        }
        let (tables, mut stream) = begin(&options, &requests).await;
        for (index, (_, _, value, reason)) in cases.iter().enumerate() {
            exec(
                &client,
                &format!(
                    "BEGIN; INSERT INTO t{index} VALUES (1, '{value}'); INSERT INTO good VALUES ({index}); COMMIT"
                ),
            )
            .await;
            let got = show_all(&next_change(&mut stream).await, &tables);
            assert_eq!(got.len(), 2, "{got:?}");
            let id = TableId(index as u32 + 2);
            assert!(
                got[0].starts_with(&format!("block {id} F0130 column c got ")) && got[0].contains(reason),
                "{got:?}"
            );
            assert!(
                !got[0].contains(value) || *value == "24:00" || *value == "NaN",
                "{got:?}"
            );
            assert_eq!(got[1], format!("insert 1 id={index}"));
            exec(
                &client,
                &format!("DELETE FROM t{index}; INSERT INTO good VALUES (-{index} - 1)"),
            )
            .await;
            // What a later transaction can send is sent: it may be above a later copy's start.
            let deleted = format!("delete {id} key(id=1 c=absent)");
            let inserted = format!("insert 1 id={}", -(index as i64) - 1);
            assert_eq!(show_all(&next_change(&mut stream).await, &tables), [deleted, inserted]);
            exec(&client, &format!("INSERT INTO t{index} VALUES (1, '{value}')")).await;
            assert_eq!(show_all(&next_change(&mut stream).await, &tables), got[..1]);
            let snapshot = create_slot(&options, Some(&format!("flow_tmp_{index}")))
                .await
                .expect("a slot");
            let copy = copy_rows(&options, &tables[index + 1], &snapshot.name).await;
            assert!(matches!(copy, Err(SourceError::Value { .. })), "{copy:?}");
        }
    }
}
