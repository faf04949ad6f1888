//! Live replies: the text of a reply while it is generated, for display.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Receives the text of a reply piece by piece.
#[derive(Clone, Debug)]
pub struct ReplyWatcher(UnboundedSender<String>);

impl ReplyWatcher {
    /// Returns a watcher and the receiver of the pieces. The size of a reply bounds the queue.
    pub fn new() -> (Self, UnboundedReceiver<String>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends a piece. Does nothing if it is empty or the receiver is gone.
    pub fn send(&self, piece: &str) {
        if !piece.is_empty() {
            let _ = self.0.send(piece.to_owned());
        }
    }
}
