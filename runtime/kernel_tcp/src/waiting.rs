//! Places of connections that are to be worked on later, first come, first served.
//!
//! A place is listed once, whichever connection comes to stand there: those that close while they wait leave nothing but a mark.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Waiting {
    numbers: VecDeque<u32>,
    /// Whether a number is among them.
    listed: Vec<bool>,
}

impl Waiting {
    /// Lists the connection of that number, unless it or a former one of it is listed already.
    pub(crate) fn add(&mut self, number: u32) {
        let place = number as usize;
        if place >= self.listed.len() {
            self.listed.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.listed[place], true) {
            self.numbers.push_back(number);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Takes the one that has waited longest.
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
