//! Asks a real server over real sockets.

mod answers;
mod documentation;
mod fixture;
