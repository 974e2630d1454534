//! The messages that os-ken's tests have recorded. They come from os-ken itself, from libofproto and from Open vSwitch.

use twinpath_openflow_wire::{BadAction, BadMatch, Field, Header, Message};

/// A line for each: its name, its bytes, and the field in it that OpenFlow 1.3 does not define, if there is one.
const RECORDED: &str = include_str!("os_ken.tsv");
const MESSAGES: usize = 104;
const REFUSED: usize = 20;

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2).map(|pair| str::from_utf8(pair).expect("digits"));
    digits.map(|digits| u8::from_str_radix(digits, 16).expect("a byte")).collect()
}

#[test]
fn recorded_messages_are_the_same_when_written_again() {
    let (mut count, mut refused) = (0, 0);
    for line in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let [name, hex] = [(); 2].map(|()| columns.next().unwrap());
        let (bytes, other_field) = (bytes_of(hex), columns.next());
        count += 1;
        let message = match Message::decode(&bytes) {
            Ok(message) => message,
            Err(error) => {
                let other_field = other_field.unwrap_or_else(|| panic!("{name}: {error}"));
                assert!(Field::ALL.iter().all(|field| field.name() != other_field), "{name}: {other_field}");
                assert!([BadMatch::BadField.into(), BadAction::BadSetType.into()].contains(&error), "{name}");
                refused += 1;
                continue;
            }
        };
        let mut written = Vec::new();
        message.encode(Header::of(&bytes).unwrap().xid, &mut written).unwrap();
        assert_eq!(written, bytes, "{name}: {message:?}");
    }
    assert_eq!((count, refused), (MESSAGES, REFUSED));
}
