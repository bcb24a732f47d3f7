//! From text to definitions.

use crate::definition::{Definition, Problem, SourceFile};

/// Reads all definitions. A statement with a problem gives no definition; the others still do.
pub fn parse(files: &[SourceFile]) -> (Vec<Definition>, Vec<Problem>) {
    let _ = files;
    (Vec::new(), Vec::new())
}
