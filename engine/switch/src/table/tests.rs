//! The table with one thread.

use super::*;

const AGEING: Duration = Duration::from_secs(300);
const SEED: [u64; 2] = [11, 12];

fn at(seconds: u64) -> Instant {
    Instant::from_nanos((1000 + seconds) * 1_000_000_000)
}

impl MacTable {
    fn learn_at(&self, seconds: u64, mac: u64, port: u16) -> Learned {
        self.learn(&self.place(mac, 1), port, tick_of(at(seconds)), Ageing::new(AGEING), 100)
    }

    fn seen(&self, seconds: u64, mac: u64) -> Option<u16> {
        self.lookup(&self.place(mac, 1), tick_of(at(seconds)), Ageing::new(AGEING))
    }
}

#[test]
fn an_address_is_learned_moves_and_is_forgotten_after_the_ageing_time() {
    let table = MacTable::new(CAPACITY, SEED);
    assert_eq!(table.seen(0, 5), None);
    assert_eq!(table.learn_at(0, 5, 7), Learned::New);
    assert_eq!(table.learn_at(1, 5, 7), Learned::Known);
    assert_eq!((table.seen(1, 5), table.seen(300, 5), table.seen(320, 5)), (Some(7), Some(7), None));
    assert_eq!(table.learn_at(200, 5, 7), Learned::Known);
    assert_eq!((table.seen(500, 5), table.seen(520, 5)), (Some(7), None));
    assert_eq!(table.learn_at(210, 5, 8), Learned::Moved { from: 7 });
    assert_eq!((table.learned_on(7), table.learned_on(8), table.seen(210, 5)), (0, 1, Some(8)));
    assert_eq!(table.learn_at(1000, 5, 9), Learned::New, "it was too old to have moved");
    assert_eq!((table.learned_on(8), table.learned_on(9)), (0, 1));
}
