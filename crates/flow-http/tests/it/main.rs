//! Asks a real server over real sockets.

mod answers;
mod catalog;
mod documentation;
mod fixture;
