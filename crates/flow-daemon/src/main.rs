//! The binary `embrasure-flow`. Everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    flow_daemon::main()
}
