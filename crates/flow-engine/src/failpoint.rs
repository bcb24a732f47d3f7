//! Crashes on purpose, for tests that kill the process between any two durable steps, and answers lost on
//! purpose.
//!
//! `FLOW_FAILPOINT=<name>:<nth>` aborts the process at the nth time the named step is reached, after
//! writing `<name>` to `state_dir/failpoint.hit`, so that a test can tell that it was. Without the
//! variable a step costs one relaxed load.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

struct Armed {
    name: String,
    left: AtomicI64,
    hit_file: std::path::PathBuf,
}

static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

/// Reads the environment once; later calls change nothing.
pub(crate) fn arm(state_dir: &Path) {
    ARMED.get_or_init(|| {
        let text = std::env::var("FLOW_FAILPOINT").ok()?;
        let (name, nth) = text.split_once(':').unwrap_or((&text, "1"));
        let nth = nth.parse().ok()?;
        Some(Armed {
            name: name.to_owned(),
            left: AtomicI64::new(nth),
            hit_file: state_dir.join("failpoint.hit"),
        })
    });
}

/// Marks a step. Aborts the process here if a test asked for it.
pub(crate) fn hit(name: &str) {
    if is_reached(name) {
        std::process::abort();
    }
}

/// Marks an answer that a test may lose: says whether this is the one, and goes on.
pub(crate) fn loses(name: &str) -> bool {
    is_reached(name)
}

fn is_reached(name: &str) -> bool {
    let Some(Some(armed)) = ARMED.get() else { return false };
    let reached = armed.name == name && armed.left.fetch_sub(1, Ordering::Relaxed) == 1;
    if reached {
        // The test tells a missing file from a reached step, so a failed write must not pass for one.
        std::fs::write(&armed.hit_file, name).expect("the state directory can be written");
    }
    reached
}
