#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    prior: u32,
    ssthresh: u32,
    delivered: u32,
    out: u32,
}
impl Prr {
    pub(crate) fn enter(&mut self, prior: u32, ssthresh: u32) {
        *self = Self { prior, ssthresh, delivered: 0, out: 0 };
    }
    pub(crate) fn sent(&mut self, n: u32) {
        self.out = self.out.saturating_add(n);
    }
    pub(crate) fn allowed(&mut self, delivered: u32, in_flight: u32, safe: bool, fast: bool) -> u32 {
        self.delivered += delivered;
        let delta = self.ssthresh as i64 - in_flight as i64;
        let mut count = if delta < 0 {
            (u64::from(self.ssthresh) * u64::from(self.delivered)).div_ceil(u64::from(self.prior.max(1)))
                as i64
                - i64::from(self.out)
        } else {
            let mut c = (i64::from(self.delivered) - i64::from(self.out)).max(i64::from(delivered));
            if safe {
                c += 1;
            }
            c.min(delta)
        };
        count = count.max(i64::from(fast && self.out == 0));
        (i64::from(in_flight) + count.max(0)) as u32
    }
}
