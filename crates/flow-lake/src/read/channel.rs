//! A bounded channel from blocking readers to one stream, which never ends early in silence.

use futures::Stream;
use tokio::sync::mpsc;

use crate::error::LakeError;

/// Counts the batches that wait for their consumer.
const BATCHES_MAX: usize = 2;

enum Message<T> {
    Item(Result<T, LakeError>),
    /// One reader has delivered everything.
    Done,
}

/// Is one reader's end.
pub(super) struct Sender<T>(mpsc::Sender<Message<T>>);

impl<T> Sender<T> {
    /// Hands an item over, waiting for room. `false` if nobody listens any more.
    pub(super) fn send(&self, item: T) -> bool {
        self.0.blocking_send(Message::Item(Ok(item))).is_ok()
    }

    /// Ends this reader's part. Without it the stream ends in an error.
    pub(super) fn finish(self, result: Result<(), LakeError>) {
        let message = match result {
            Ok(()) => Message::Done,
            Err(error) => Message::Item(Err(error)),
        };
        // A consumer that is gone wants no ending.
        let _ = self.0.blocking_send(message);
    }
}

/// Makes a stream that `readers` senders fill.
pub(super) fn channel<T: Send + 'static>(
    readers: usize,
) -> (
    Vec<Sender<T>>,
    impl Stream<Item = Result<T, LakeError>> + Send + 'static,
) {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    let senders = (0..readers).map(|_| Sender(sender.clone())).collect();
    let stream = futures::stream::unfold(Some((receiver, readers)), next);
    (senders, stream)
}

type State<T> = Option<(mpsc::Receiver<Message<T>>, usize)>;

async fn next<T>(state: State<T>) -> Option<(Result<T, LakeError>, State<T>)> {
    let (mut receiver, mut open) = state?;
    while open > 0 {
        match receiver.recv().await {
            Some(Message::Item(Ok(item))) => return Some((Ok(item), Some((receiver, open)))),
            Some(Message::Item(Err(error))) => return Some((Err(error), None)),
            Some(Message::Done) => open -= 1,
            None => return Some((Err(LakeError::broken("a reader stopped half-way")), None)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_reader_that_vanishes_is_an_error() {
        let (mut senders, stream) = channel::<u32>(2);
        let readers = std::thread::spawn(move || {
            let vanishing = senders.pop().expect("two senders");
            let good = senders.pop().expect("two senders");
            assert!(good.send(1));
            good.finish(Ok(()));
            drop(vanishing);
        });
        let items: Vec<_> = stream.collect().await;
        readers.join().expect("readers end");
        assert_eq!(items.len(), 2);
        assert!(matches!(items[0], Ok(1)));
        assert!(items[1].is_err());
    }

    #[tokio::test]
    async fn all_readers_done_is_the_end() {
        let (senders, stream) = channel::<u32>(3);
        let readers = std::thread::spawn(move || {
            for sender in senders {
                assert!(sender.send(7));
                sender.finish(Ok(()));
            }
        });
        let items: Vec<_> = stream.map(|item| item.expect("an item")).collect().await;
        readers.join().expect("readers end");
        assert_eq!(items, [7, 7, 7]);
    }
}
