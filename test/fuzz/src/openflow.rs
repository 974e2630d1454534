//! Fuzzes OpenFlow: what is said of two matches is true of the frames that they take.

use twinpath_openflow::{Field, Match, MatchField};

use crate::fuzz;

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
