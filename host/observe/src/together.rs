//! Futures that make progress together on the control thread. All of them are polled whenever one is woken, so they are
//! few: clients of a socket, descriptors, programs.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits for the first future that ends; of several that are ready, the first of the list. For ever if there are none.
pub async fn first_of<F: Future>(futures: impl IntoIterator<Item = F>) -> F::Output {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Futures that come and go.
#[derive(Debug)]
pub struct Together<F> {
    running: Vec<Pin<Box<F>>>,
}

impl<F> Default for Together<F> {
    fn default() -> Self {
        Self { running: Vec::new() }
    }
}

impl<F: Future> Together<F> {
    /// Adds one.
    pub fn push(&mut self, future: F) {
        self.running.push(Box::pin(future));
    }

    /// How many run.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none runs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Waits for the next one that ends; for ever if none runs. Cancelling it loses nothing.
    pub async fn ended(&mut self) -> F::Output {
        match self.next().await {
            Some(output) => output,
            None => std::future::pending().await,
        }
    }

    /// Waits for the next one that ends; `None` if none runs. Cancelling it loses nothing.
    async fn next(&mut self) -> Option<F::Output> {
        if self.running.is_empty() {
            return None;
        }
        poll_fn(|context| {
            for at in 0..self.running.len() {
                if let Poll::Ready(output) = self.running[at].as_mut().poll(context) {
                    drop(self.running.swap_remove(at));
                    return Poll::Ready(Some(output));
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use twinpath_sys::event_loop::channel::{Receiver, once};
    use twinpath_sys::event_loop::{EventLoop, yield_now};
    use twinpath_sys::race;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        EventLoop::new().expect("a loop").run(test)
    }

    async fn told(mut wait: Receiver<u32>) -> Option<u32> {
        wait.recv().await
    }

    #[test]
    fn each_future_ends_when_its_own_event_comes() {
        run(async {
            let mut all = Together::default();
            assert!(all.is_empty());
            let (tell, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| once::<u32>()).unzip();
            waits.into_iter().for_each(|wait| all.push(told(wait)));
            let mut tell: Vec<_> = tell.into_iter().map(Some).collect();
            for (left, at) in [(2, 1), (1, 0), (0, 2)] {
                let teller = tell[at].take().expect("once each");
                let tells = async {
                    yield_now().await;
                    teller.send(at as u32).expect("it is awaited");
                    std::future::pending().await
                };
                assert_eq!(race!(all.ended(), tells), Some(at as u32));
                assert_eq!(all.len(), left);
            }
            assert_eq!(all.next().await, None);
        });
    }

    #[test]
    fn of_several_that_are_ready_the_first_wins() {
        run(async {
            let (_tell, never) = once::<u32>();
            let (tell, ready): (Vec<_>, Vec<_>) = (0..2).map(|_| once::<u32>()).unzip();
            (7..).zip(tell).for_each(|(value, tell)| tell.send(value).expect("it is awaited"));
            assert_eq!(first_of(std::iter::once(never).chain(ready).map(told)).await, Some(7));
        });
    }
}
