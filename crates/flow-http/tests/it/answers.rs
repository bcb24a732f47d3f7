//! What each path answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use flow_core::{Remedial, Remedy};
use flow_engine::Status;
use flow_engine::status::ServiceState;
use flow_http::{HttpOptions, HttpServer};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::fixture::{full_status, get, start};

#[tokio::test]
async fn liveness_follows_the_main_loop_alone() {
    let running = start(Status::default(), None).await;
    for path in ["/healthz", "/livez"] {
        assert_eq!(
            get(running.address, path, "").await.0,
            200,
            "{path}: not ready is alive"
        );
    }
    running.shown.age_ms.store(31_000, Ordering::Relaxed);
    for path in ["/healthz", "/livez"] {
        let (code, _, body) = get(running.address, path, "").await;
        assert_eq!(
            (code, body.as_str()),
            (503, "main loop has not turned for 31 s\n"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn readiness_follows_the_status() {
    let running = start(full_status(), None).await;
    let (code, _, body) = get(running.address, "/readyz", "").await;
    assert_eq!((code, body.as_str()), (200, "streaming\n"));
    let copying = Status {
        state: ServiceState::Copying,
        ..Status::default()
    };
    let running = start(copying, None).await;
    let (code, _, body) = get(running.address, "/readyz", "").await;
    assert_eq!((code, body.as_str()), (503, "copying\n"));
}

#[tokio::test]
async fn status_is_the_document() {
    let running = start(full_status(), None).await;
    let (code, head, body) = get(running.address, "/status", "").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    let document: Status = serde_json::from_str(&body).expect("the document");
    assert_eq!(document, full_status());
    let json: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(json["source"]["published_lsn"], "16/B374D848");
    assert_eq!(json["tables"][0]["snapshot_id"], i64::MAX.to_string());
}

#[tokio::test]
async fn the_token_guards_status_only() {
    let running = start(full_status(), Some("letmein")).await;
    for path in ["/healthz", "/livez", "/readyz", "/metrics"] {
        assert_eq!(get(running.address, path, "").await.0, 200, "{path}");
    }
    let check = async |header: &str, expect: u16| {
        let (code, head, body) = get(running.address, "/status", header).await;
        assert_eq!(code, expect, "{header}");
        assert!(!body.contains("letmein") && !head.contains("letmein"));
    };
    check("", 401).await;
    check("Authorization: Bearer letmeou\r\n", 401).await;
    check("Authorization: Bearer letmein2\r\n", 401).await;
    check("Authorization: Bearer letmei\r\n", 401).await;
    check("Authorization: Basic letmein\r\n", 401).await;
    check("Authorization: Bearer letmein\r\n", 200).await;
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let running = start(full_status(), None).await;
    running.shown.counters.commits.add(3);
    running.shown.counters.commit_time.record(Duration::from_millis(7));
    running.shown.counters.commit_time.record(Duration::from_secs(60));
    let (code, head, body) = get(running.address, "/metrics", "").await;
    assert_eq!(code, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    for line in [
        "# TYPE flow_catalog_commits_total counter",
        "flow_catalog_commits_total 3",
        "flow_service_ready 1",
        "flow_service_state{state=\"streaming\"} 1",
        "flow_source_lsn_bytes{position=\"published\"} 97500059720",
        "flow_table_state{table=\"bronze.orders\",state=\"blocked\"} 1",
        "flow_table_lag_seconds{table=\"bronze.orders\"} 1.5",
        "flow_dynamic_table_state{table=\"gold.q\\\"\\n\",state=\"waiting\"} 1",
        "flow_last_error_timestamp_seconds{code=\"F0102\"} 2",
        "flow_publish_seconds_bucket{stage=\"commit\",le=\"0.005\"} 0",
        "flow_publish_seconds_bucket{stage=\"commit\",le=\"0.01\"} 1",
        "flow_publish_seconds_bucket{stage=\"commit\",le=\"+Inf\"} 2",
        "flow_publish_seconds_count{stage=\"commit\"} 2",
        "flow_publish_seconds_sum{stage=\"commit\"} 60.007",
        "flow_refresh_seconds_count 0",
    ] {
        assert!(body.lines().any(|found| found == line), "no line '{line}' in\n{body}");
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let running = start(Status::default(), None).await;
    assert_eq!(get(running.address, "/", "").await.0, 404);
    assert_eq!(get(running.address, "/status/x", "").await.0, 404);
    let mut stream = TcpStream::connect(running.address).await.expect("listens");
    let request = b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("reads");
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer)
        .await
        .expect("answers");
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test]
async fn an_open_address_needs_a_token_and_a_taken_one_is_refused() {
    let open = HttpOptions {
        listen: "0.0.0.0:0".parse().expect("an address"),
        token: None,
    };
    let error = HttpServer::bind(open).await.expect_err("no token");
    assert_eq!((error.remedy(), error.code()), (Remedy::Reconfigure, Some("F0502")));
    let running = start(Status::default(), None).await;
    let taken = HttpOptions {
        listen: running.address,
        token: None,
    };
    let error = HttpServer::bind(taken).await.expect_err("is taken");
    assert_eq!(
        error.to_string(),
        format!("cannot listen on {} for HTTP", running.address)
    );
    let options = HttpOptions {
        listen: running.address,
        token: Some("letmein".into()),
    };
    assert!(!format!("{options:?}").contains("letmein"));
}

#[tokio::test]
async fn stopping_does_not_wait_for_silent_clients() {
    let running = start(Status::default(), None).await;
    let mut silent = TcpStream::connect(running.address).await.expect("listens");
    silent.write_all(b"GET /st").await.expect("reads");
    assert_eq!(get(running.address, "/livez", "").await.0, 200);
    running.stop.send(()).expect("is serving");
    let ended = tokio::time::timeout(Duration::from_secs(10), running.serving).await;
    ended
        .expect("stops within its limit")
        .expect("does not panic")
        .expect("ends well");
    assert!(
        TcpStream::connect(running.address).await.is_err(),
        "the port is free again"
    );
}
