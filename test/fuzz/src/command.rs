//! Fuzzes requests on the command socket: a request that is accepted reads back as it was written.

use twinpath_observe::command::{Request, Topic};

use crate::fuzz;

fn check(line: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(line) else { return };
    let written = serde_json::to_vec(&request).expect("a request is JSON");
    let again: Request = serde_json::from_slice(&written).expect("what we write we read");
    assert_eq!(again, request);
    if let Request::Show(topic) = request {
        assert!(Topic::ALL.contains(&topic));
    }
}

#[test]
fn lines() {
    fuzz!("command__lines", check);
}

/// Parts of requests, combined in every order.
const PIECES: [&str; 16] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"show\"",
    "\"set\"",
    "\"all\"",
    "\"workers\"",
    "\"worker\"",
    "\"mode\"",
    "\"poll\"",
    "0",
    "4294967296",
    "null",
];

#[test]
fn pieces() {
    fuzz!("command__pieces", |input: &[u8]| {
        let pieces = input.iter().map(|piece| PIECES[usize::from(*piece) % PIECES.len()]);
        check(pieces.collect::<String>().as_bytes());
    });
}
