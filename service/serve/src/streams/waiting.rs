//! A queue of the numbers of connections that are served later.
//!
//! A number is queued once, even if its connection closes and another one gets the number.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Waiting {
    numbers: VecDeque<u32>,
    /// Whether a number is in the queue.
    listed: Vec<bool>,
}

impl Waiting {
    /// Adds the connection `number`, unless the number is in the queue already.
    pub(crate) fn add(&mut self, number: u32) {
        let index = number as usize;
        if index >= self.listed.len() {
            self.listed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.listed[index], true) {
            self.numbers.push_back(number);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Takes the number that has waited longest.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let number = self.numbers.pop_front()?;
        self.listed[number as usize] = false;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_listed_once_however_often_connections_come_and_go_there() {
        let mut waiting = Waiting::default();
        for _ in 0..1000 {
            [7, 300, 7].into_iter().for_each(|number| waiting.add(number));
        }
        assert_eq!(std::iter::from_fn(|| waiting.take()).collect::<Vec<_>>(), [7, 300]);
        waiting.add(7);
        assert_eq!((waiting.take(), waiting.take()), (Some(7), None), "listed anew once it was taken");
    }
}
