//! Starts a capture of the interface for a client.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use twinpath_host::Captures;
use twinpath_observe::command;

use super::{Instance, Message};

impl Instance {
    /// Answers in one line; after that the connection carries the file.
    pub(super) fn capture(&mut self, wish: &command::Capture, mut stream: UnixStream) {
        // The line fits into the buffer of the new connection. If the client has closed it, the capture will
        // notice.
        if let Err(sentence) = self.begin_capture(wish, &stream) {
            let _ = stream.write_all(&command::refusal(&sentence));
        }
    }

    fn begin_capture(&mut self, wish: &command::Capture, stream: &UnixStream) -> Result<(), String> {
        let (name, wanted) = (&self.interface.name, &wish.interface);
        if name != wanted {
            return Err(format!("this instance serves {name}, not {wanted}"));
        }
        if self.interface.attachment.is_none() {
            let why = &self.interface.choice.why;
            return Err(format!("nothing of {name} is on a fast path: tcpdump sees all of it; {why}"));
        }
        let tell = self.tell.clone();
        let ended = move |id| drop(tell.blocking_send(Message::CaptureEnded(id)));
        let workers = self.workers.iter_mut().map(|worker| &mut **worker);
        let attachment = &mut self.interface.attachment;
        let show = |captures: &Captures| {
            attachment.iter_mut().for_each(|attachment| attachment.show_replies(captures.taps()));
        };
        self.captures.begin(wish, None, stream, workers, show, ended)
    }

    /// Shows the replies of the kernel's programs to the captures that are running.
    pub(super) fn show_replies(&mut self) {
        if let Some(attachment) = &mut self.interface.attachment {
            attachment.show_replies(self.captures.taps());
        }
    }
}
