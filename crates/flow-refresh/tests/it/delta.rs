//! Incremental refreshes: after every step, content equals recompute and state equals a fresh build.

mod cases;
mod random;
mod state;
mod world;
