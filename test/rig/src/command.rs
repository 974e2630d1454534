//! Programs in a namespace.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};

use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};

/// The arguments of a program: a line that is cut at blanks, or the words themselves.
pub trait Words {
    /// The words, one by one.
    fn words(&self) -> Vec<&str>;
}

impl Words for str {
    fn words(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<&str> {
        self.as_str().words()
    }
}

impl Words for [&str] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

impl Words for Vec<&str> {
    fn words(&self) -> Vec<&str> {
        self.clone()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<&str> {
        self.to_vec()
    }
}

/// Places a command in a namespace. It is killed when the thread ends that spawns it.
pub fn within<'a>(namespace: &Namespace, command: &'a mut Command) -> &'a mut Command {
    let placement = Placement { namespace: Some(namespace), ..Placement::default() };
    place(command, placement).expect("a descriptor for the namespace");
    command
}

/// A program in a namespace, as [`within`] places it, with nothing to read.
#[must_use]
pub fn command(namespace: &Namespace, program: &str) -> Command {
    let mut command = Command::new(program);
    within(namespace, command.stdin(Stdio::null()));
    command
}

/// Runs a program in a namespace, which must end well; what it prints.
pub fn run(namespace: &Namespace, program: &str, arguments: &(impl Words + ?Sized)) -> String {
    let words = arguments.words();
    printed(command(namespace, program).args(&words))
}

/// Runs `ip` in a namespace, which must end well; what it prints.
pub fn ip(namespace: &Namespace, arguments: &(impl Words + ?Sized)) -> String {
    run(namespace, "ip", arguments)
}

/// Runs a program in the namespace that the calling thread is in, such as that of [`Namespace::run`]; it must end well. What it prints.
pub fn run_here(program: &str, arguments: &(impl Words + ?Sized)) -> String {
    printed(Command::new(program).args(arguments.words()).stdin(Stdio::null()))
}

/// The same with `ip`.
pub fn ip_here(arguments: &(impl Words + ?Sized)) -> String {
    run_here("ip", arguments)
}

fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Starts a program in a namespace.
pub fn start(namespace: &Namespace, program: &str, arguments: &(impl Words + ?Sized)) -> Started {
    let mut command = command(namespace, program);
    Started::new(command.args(arguments.words()))
}

/// A program that was started, and is killed at the latest when this is dropped.
#[derive(Debug)]
pub struct Started(Child);

impl Started {
    /// Starts it.
    pub fn new(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")))
    }
}

impl From<Child> for Started {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a program, and waits until it has ended.
pub fn kill(program: impl Into<Started>) {
    drop(program.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_blanks_and_words_stay_as_they_are() {
        assert_eq!("link  set lo up".words(), ["link", "set", "lo", "up"]);
        assert_eq!(["a b", "c"].words(), ["a b", "c"]);
        assert_eq!(ip_here("-V").split(' ').next(), Some("ip"));
    }

    #[test]
    fn a_program_ends_with_the_test_that_panics() {
        if !crate::root_or_skip() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        let mut id = 0;
        let panics = std::panic::AssertUnwindSafe(|| {
            let started = start(&namespace, "sleep", "600");
            id = started.id();
            panic!("on purpose");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(id > 0 && !std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
