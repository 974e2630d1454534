//! Fuzzes OpenFlow: messages are the same when they are written and read again, whatever the bytes, and however their
//! stream is divided; what is said of two matches is true of the frames that they take.

use twinpath_openflow_wire::{ErrorMessage, Field, Frames, HEADER_LEN, Match, MatchField, Message};

use crate::fuzz;
use crate::seed::openflow::{Choices, message};

/// Fields with few values each, so that matches often agree: the field, a value, and whether there is a mask.
fn described(mut input: &[u8]) -> Vec<MatchField> {
    let mut fields = Vec::new();
    while let Some((&[number, value, mask], rest)) = input.split_first_chunk::<3>() {
        input = rest;
        let Some(field) = Field::from_number(number % 44) else { break };
        let value = match field {
            Field::EthType => [0x0800, 0x0806, 0x86dd, 0x8847][usize::from(value % 4)],
            Field::IpProto => [1, 6, 17, 58][usize::from(value % 4)],
            Field::VlanVid => 0x1000 | u128::from(value % 4),
            _ => u128::from(value) & field.full_mask(),
        };
        let mask = (mask % 2 == 1).then(|| u128::from(mask >> 1) | field.full_mask() & !0xff);
        fields.push(MatchField { field, value, mask });
    }
    fields
}

/// Whether a match takes a frame with these values.
fn takes(entry: &Match, values: &[u128; Field::COUNT]) -> bool {
    let values = |field: Field| values[usize::from(field.number())];
    entry.fields().iter().all(|one| (values(one.field) ^ one.value) & one.effective_mask() == 0)
}

/// The values of a frame that a match takes, and otherwise those of another.
fn taken_by(entry: &Match, other: &Match) -> [u128; Field::COUNT] {
    let mut values = [0; Field::COUNT];
    for one in other.fields().iter().chain(entry.fields()) {
        let value = &mut values[usize::from(one.field.number())];
        *value = *value & !one.effective_mask() | one.value;
    }
    values
}

#[test]
fn matches() {
    fuzz!("openflow__matches", |input: &[u8]| {
        let (one, two) = input.split_at(input.len() / 6 * 3);
        let (Ok(one), Ok(two)) = (Match::new(described(one)), Match::new(described(two))) else { return };
        let (of_one, of_two) = (taken_by(&one, &two), taken_by(&two, &one));
        assert!(takes(&one, &of_one) && takes(&two, &of_two));
        assert_eq!(one.overlaps(&two), takes(&two, &of_one), "{one:?} {two:?}");
        if one.includes(&two) {
            assert!(takes(&one, &of_two), "{one:?} {two:?}");
        }
        assert_eq!(one.canonical() == two.canonical(), one.includes(&two) && two.includes(&one));
        let again = Match::new(one.canonical()).expect("a canonical match is a match");
        assert!(again.includes(&one) && one.includes(&again));
    });
}

/// Decodes bytes that are as long as they say.
fn check(bytes: &[u8]) {
    match Message::decode(bytes) {
        Ok(message) => {
            let mut written = Vec::new();
            message.encode(7, &mut written).expect("it is no longer than what was read");
            assert!(written.len() <= bytes.len() + 8, "{message:?}");
            assert_eq!(Message::decode(&written), Ok(message), "{bytes:02x?}");
        }
        Err(error) => {
            let answer = Message::Error(ErrorMessage::about(error, bytes));
            let mut written = Vec::new();
            answer.encode(7, &mut written).expect("an error is short");
            assert_eq!(Message::decode(&written), Ok(answer));
        }
    }
}

/// Sets the length in the head to what is there.
fn with_its_length(bytes: &mut [u8]) {
    let len = u16::try_from(bytes.len()).expect("inputs are short");
    if let Some(field) = bytes.get_mut(2..4) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

fn encoded(choices: &[u8]) -> (Message, Vec<u8>) {
    let message = message(&mut Choices::new(choices));
    let mut bytes = Vec::new();
    message.encode(3, &mut bytes).expect("generated messages are short");
    (message, bytes)
}

#[test]
fn messages() {
    fuzz!("openflow__messages", |input: &[u8]| {
        let (message, bytes) = encoded(input);
        assert_eq!(Message::decode(&bytes), Ok(message));
        let mut input = input.to_vec();
        with_its_length(&mut input);
        check(&input);
    });
}

#[test]
fn damaged_messages() {
    fuzz!("openflow__damaged_messages", |input: &[u8]| {
        let Some((&[edits, end], input)) = input.split_first_chunk::<2>() else { return };
        let (edits, choices) = input.split_at(input.len().min(usize::from(edits % 4) * 2));
        let (_, mut bytes) = encoded(choices);
        bytes.truncate(bytes.len().saturating_sub(usize::from(end % 16)).max(HEADER_LEN));
        let len = bytes.len();
        for edit in edits.chunks_exact(2) {
            bytes[usize::from(edit[0]) % len] ^= edit[1];
        }
        check(&bytes);
        with_its_length(&mut bytes);
        check(&bytes);
    });
}

#[test]
fn streams() {
    fuzz!("openflow__streams", |input: &[u8]| {
        let Some((&piece, input)) = input.split_first() else { return };
        let sent: Vec<_> = input.chunks(40).map(|choices| encoded(choices).1).collect();
        let stream = sent.concat();
        for piece in [usize::from(piece) + 1, usize::MAX] {
            let mut frames = Frames::new();
            let mut received = Vec::new();
            for mut piece in stream.chunks(piece) {
                while let Some(message) = frames.next(&mut piece).expect("lengths are right") {
                    received.push(message.to_vec());
                }
            }
            assert_eq!(received, sent);
            assert!(!frames.is_unfinished());
        }
        // The same bytes as a random stream.
        let mut frames = Frames::new();
        for mut piece in input.chunks(usize::from(piece) + 1) {
            while let Ok(Some(message)) = frames.next(&mut piece) {
                assert!(message.len() >= HEADER_LEN);
                check(message);
            }
        }
    });
}
