//! A value that may only grow.

/// Holds a value that never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monotonic<T>(T);

impl<T: Ord + Copy + std::fmt::Debug> Monotonic<T> {
    /// Starts at `value`.
    pub fn new(value: T) -> Self {
        Monotonic(value)
    }

    /// Is the value reached so far.
    pub fn get(&self) -> T {
        self.0
    }

    /// Moves to `value`, or stays if it is not later. Says whether it moved.
    pub fn raise(&mut self, value: T) -> bool {
        let moves = value > self.0;
        if moves {
            self.0 = value;
        }
        moves
    }

    /// Moves to `value`.
    ///
    /// # Panics
    /// If `value` is earlier than what was reached: a broken invariant, never input.
    pub fn advance(&mut self, value: T) {
        assert!(value >= self.0, "may only grow: {:?} after {:?}", value, self.0);
        self.0 = value;
    }
}
