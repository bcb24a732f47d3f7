//! The service where PostgreSQL is not there: what it says, how it ends, what it leaves.

use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::folder::{Folder, PASSWORD};

fn folder(retry_for: &str, listen: &str) -> Folder {
    Folder::new(&format!(
        "[source]\nconnection_env = \"FLOW_POSTGRES_URL\"\nretry_for = \"{retry_for}\"\n\
         [limits]\nmin_free_bytes = \"0B\"\n[http]\nlisten = \"{listen}\"\n[[tables]]\nsource = \"public.orders\"\n"
    ))
}

#[test]
fn a_taken_http_address_is_78_before_anything_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("is bound").to_string();
    let folder = folder("0s", &address);
    folder.run(&["run"]).expect(78, &["F0502", &address]);
    assert!(!folder.path("state").exists(), "the state directory was not touched");
}

#[test]
fn a_bad_log_filter_is_78() {
    let folder = folder("0s", "127.0.0.1:0");
    let mut command = folder.command(&["run"]);
    command.env("FLOW_LOG", "flow=loudly");
    crate::folder::finish(&mut command).expect(78, &["FLOW_LOG"]);
}

#[test]
fn an_unreachable_source_is_75() {
    let folder = folder("0s", "127.0.0.1:0");
    let checked = folder
        .run(&["check", "--source"])
        .expect(75, &["error[F0102]", "127.0.0.1:1"]);
    assert!(checked.out.contains("ok       configuration"), "{checked:?}");
    folder.run(&["discover"]).expect(75, &["F0102"]);
    let run = folder.run(&["run", "--init"]).expect(75, &["F0102"]);
    for line in run.err.lines().filter(|line| line.starts_with('{')) {
        let event: serde_json::Value = serde_json::from_str(line).expect("each log line is JSON");
        assert!(event["level"].is_string() && event["timestamp"].is_string(), "{line}");
        assert!(event["message"].is_string(), "{line}");
    }
    // The shape that docs/observability.md promises to whoever collects logs.
    let last = run.err.lines().rfind(|line| line.starts_with('{')).expect("a log line");
    let event: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(
        (&event["level"], &event["code"]),
        (&"ERROR".into(), &"F0102".into()),
        "{last}"
    );
    let time = event["timestamp"].as_str().expect("a text");
    assert!(time.len() > 20 && time.ends_with('Z') && &time[10..11] == "T", "{last}");
}

struct Running(Child);

impl Running {
    fn start(folder: &Folder) -> Running {
        let log = std::fs::File::create(folder.path("log")).expect("is writable");
        let child = folder
            .command(&["run", "--init"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Running(child.expect("the binary starts"))
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `probe` gives something.
fn wait<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn while_it_retries_it_answers_and_stops_in_order() {
    let folder = folder("5m", "127.0.0.1:0");
    let mut running = Running::start(&folder);
    let document = wait("the service to answer", || {
        let status = folder.run(&["status", "--json"]);
        assert_eq!(status.code, Some(3), "{status:?}");
        let document: serde_json::Value = serde_json::from_str(&status.out).ok()?;
        (document["pid"] == running.0.id() && document["http"].is_string()).then_some(document)
    });
    assert_eq!(document["ready"], false);
    wait("the service to say that it waits for PostgreSQL", || {
        let status = folder.run(&["status", "--json"]);
        let document: serde_json::Value = serde_json::from_str(&status.out).ok()?;
        (document["state"] == "degraded").then_some(())
    });
    let address = document["http"].as_str().expect("an address");
    assert!(
        address.starts_with("127.0.0.1:") && !address.ends_with(":0"),
        "{address}"
    );
    assert_eq!(get(address, "/livez"), 200);
    assert_eq!(get(address, "/readyz"), 503);
    assert_eq!(get(address, "/metrics"), 200);
    folder.run(&["run"]).expect(75, &["state"]);
    running.signal("TERM");
    let ended = wait("the service to stop", || running.0.try_wait().expect("is our child"));
    let log = std::fs::read_to_string(folder.path("log")).expect("is there");
    assert_eq!(ended.code(), Some(0), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
    assert!(!folder.path("state/control.sock").exists());
    let status = folder.run(&["status", "--json"]).expect(3, &[]);
    let document: serde_json::Value = serde_json::from_str(&status.out).expect("JSON");
    assert_eq!(
        (document["state"].as_str(), document["pid"].as_u64()),
        (Some("stopped"), Some(0))
    );
}

/// Gives the status code of a request.
fn get(address: &str, path: &str) -> u16 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answers");
    answer
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status code")
}
