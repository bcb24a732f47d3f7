//! `docs/observability.md` explains every metric and every field of the status document.

use flow_http::metrics::{CATALOGUE, Kind};

use crate::fixture::{full_status, get, start};

const PAGE: &str = include_str!("../../../../docs/observability.md");

#[test]
fn every_metric_is_explained() {
    for metric in CATALOGUE {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!(
            "| `{}` | {kind} | {} | {} |",
            metric.name,
            labels.join(", "),
            metric.help
        );
        assert!(
            PAGE.lines().any(|line| line == row),
            "docs/observability.md lacks\n{row}"
        );
    }
    let kinds = ["| gauge |", "| counter |", "| histogram |"];
    let explained = PAGE
        .lines()
        .filter(|line| kinds.iter().any(|kind| line.contains(kind)))
        .count();
    assert_eq!(
        explained,
        CATALOGUE.len(),
        "docs/observability.md explains a metric that is not there"
    );
}

#[test]
fn names_follow_the_pattern() {
    for metric in CATALOGUE {
        let name = metric.name;
        assert!(name.starts_with("flow_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert!(metric.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
    }
}

#[tokio::test]
async fn every_declared_metric_is_served() {
    let running = start(full_status(), None).await;
    let (_, _, body) = get(running.address, "/metrics", "").await;
    for metric in CATALOGUE {
        assert!(
            body.contains(&format!("# HELP {} ", metric.name)),
            "{} is not served",
            metric.name
        );
    }
}

#[test]
fn every_status_field_is_explained() {
    let document = serde_json::to_value(full_status()).expect("plain data");
    let mut missing = Vec::new();
    walk("", &document, &mut missing);
    assert!(missing.is_empty(), "docs/observability.md lacks the fields {missing:?}");
}

/// Looks for a table row of each field by its full path, list items as `[]`.
fn walk(path: &str, value: &serde_json::Value, missing: &mut Vec<String>) {
    match value {
        // The frontier's keys are table names.
        serde_json::Value::Object(_) if path.ends_with(".frontier") => {}
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                let path = match path {
                    "" => key.clone(),
                    _ => format!("{path}.{key}"),
                };
                let array = matches!(value, serde_json::Value::Array(_));
                let path = if array { format!("{path}[]") } else { path };
                if !PAGE.lines().any(|line| line.starts_with(&format!("| `{path}` |"))) {
                    missing.push(path.clone());
                }
                walk(&path, value, missing);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| walk(path, item, missing)),
        _ => {}
    }
}
