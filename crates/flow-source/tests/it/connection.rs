//! Reaching and trusting the server.

use flow_core::{Remedial, Remedy};
use flow_source::{ConnInfo, SourceError, SourceOptions, server_lsn, slot_state};

use crate::harness::*;

/// Tries both kinds of session and gives their outcome, which must be the same.
async fn try_both(conninfo: &str) -> Result<(), SourceError> {
    let options = SourceOptions::new(ConnInfo::parse(conninfo).expect("valid"), "s", "p");
    let sql = server_lsn(&options).await.map(drop);
    let own = slot_state(&options).await.map(drop);
    let code = |r: &Result<(), SourceError>| r.as_ref().err().and_then(Remedial::code);
    assert_eq!(code(&sql), code(&own), "{sql:?} {own:?}");
    own
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_modes_and_passwords() {
    for version in versions() {
        let env = [("PG_SSL", "1"), ("PG_PASSWORD", "pass 'word'")];
        let server = Server::start(&version, "", &env);
        let root = server.dir.path().join("server.crt").display().to_string();
        let foreign = server.dir.path().join("foreign.crt");
        let made = std::process::Command::new("openssl")
            .args([
                "req",
                "-new",
                "-x509",
                "-nodes",
                "-subj",
                "/CN=x",
                "-keyout",
                "/dev/null",
                "-out",
            ])
            .arg(&foreign)
            .output()
            .expect("openssl runs");
        assert!(made.status.success());
        let foreign = foreign.display();
        let check = async |rest: &str, expected: Option<&str>| {
            let password = if rest.contains("password") {
                ""
            } else {
                r"password='pass \'word\''"
            };
            let text = format!("port={} user=postgres {password} {rest}", server.port);
            let outcome = try_both(&text).await;
            let code = outcome.as_ref().err().and_then(Remedial::code);
            assert_eq!(code, expected, "{rest}: {outcome:?}");
            if let Err(error) = outcome {
                assert_eq!(error.remedy(), Remedy::Reconfigure);
                assert!(!error.to_string().contains("word'"), "{error}");
            }
        };
        for mode in ["disable", "allow", "prefer", "require"] {
            check(&format!("host=127.0.0.1 sslmode={mode}"), None).await;
        }
        check(&format!("host=localhost sslmode=verify-full sslrootcert={root}"), None).await;
        check(&format!("host=127.0.0.1 sslmode=verify-full sslrootcert={root}"), None).await;
        check(
            &format!("host=wrong.example hostaddr=127.0.0.1 sslmode=verify-full sslrootcert={root}"),
            Some("F0105"),
        )
        .await;
        check(
            &format!("host=wrong.example hostaddr=127.0.0.1 sslmode=verify-ca sslrootcert={root}"),
            None,
        )
        .await;
        check(
            &format!("host=127.0.0.1 sslmode=verify-ca sslrootcert={foreign}"),
            Some("F0105"),
        )
        .await;
        check(
            &format!("host=127.0.0.1 sslmode=require sslrootcert={foreign}"),
            Some("F0105"),
        )
        .await;
        check("host=127.0.0.1 sslmode=verify-full sslrootcert=/nowhere", Some("F0105")).await;
        check("host=127.0.0.1 sslmode=disable password=wrong", Some("F0104")).await;
        check("host=127.0.0.1 sslmode=disable dbname=nope", Some("F0104")).await;
        let socket = server.dir.path().display();
        check(&format!("host={socket} sslmode=verify-full dbname=postgres"), None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_and_one_without_room() {
    for version in versions() {
        let conf = "max_connections = 8\nmax_wal_senders = 2\nsuperuser_reserved_connections = 1";
        let server = Server::start(&version, conf, &[]);
        exec(&server.client().await, "CREATE ROLE plain LOGIN").await;
        let text = |rest: &str| format!("host=127.0.0.1 port={} user=plain dbname=postgres {rest}", server.port);
        assert_eq!(try_both(&text("sslmode=prefer")).await.map_err(|e| e.code()), Ok(()));
        let refused = try_both(&text("sslmode=require")).await.expect_err("no TLS");
        assert_eq!((refused.code(), refused.remedy()), (Some("F0105"), Remedy::Reconfigure));
        let mut held = Vec::new();
        while let Ok((client, connection)) = tokio_postgres::connect(&text(""), tokio_postgres::NoTls).await {
            tokio::spawn(connection);
            held.push(client);
        }
        let full = try_both(&text("")).await.expect_err("no room");
        assert_eq!((full.code(), full.remedy()), (Some("F0103"), Remedy::Retry), "{full:?}");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("bound")
            .port();
        let nobody = try_both(&format!("host=127.0.0.1 user=u port={port}"))
            .await
            .expect_err("nobody there");
        assert_eq!((nobody.code(), nobody.remedy()), (Some("F0102"), Remedy::Retry));
    }
}
