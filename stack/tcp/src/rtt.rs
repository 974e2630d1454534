use twinpath_time::Instant;
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    srtt: u32,
    var: u32,
    min: u32,
    rto_min: u32,
}
impl Rtt {
    pub(crate) fn new(rto_min_us: u32) -> Self {
        Self { srtt: 0, var: 0, min: 0, rto_min: rto_min_us }
    }
    pub(crate) fn sample(&mut self, _now: Instant, us: u32, _una: u32, _next: u32) {
        if self.srtt == 0 {
            self.srtt = us;
            self.var = us / 2;
            self.min = us;
            return;
        }
        self.min = self.min.min(us);
        self.var = self.var - self.var / 4 + self.srtt.abs_diff(us) / 4;
        self.srtt = self.srtt - self.srtt / 8 + us / 8;
    }
    pub(crate) fn srtt_us(&self) -> u32 {
        self.srtt
    }
    pub(crate) fn rttvar_us(&self) -> u32 {
        self.var
    }
    pub(crate) fn min_us(&self) -> u32 {
        self.min
    }
    pub(crate) fn rto_us(&self) -> u32 {
        if self.srtt == 0 { 1_000_000 } else { self.srtt + (4 * self.var).max(self.rto_min) }
    }
}
