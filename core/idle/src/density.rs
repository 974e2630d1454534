//! A density of the next arrival's time, as cells between edges: the solver's input.

use crate::gaps::Decaying;

/// Maximum number of cells in a density.
pub(crate) const CELLS: usize = 256;

/// Maximum number of boxes in a density. Each may need an empty cell before it, and three where a wake-up ahead of
/// it may start.
const BOXES: usize = 48;

/// How long before a box a timer may be set, us, descending; computed from the timer's own lateness.
pub(crate) type Leads = [f32; 8];

/// A density of the next gap: `mass[i]` gaps lie within `edges[i]..edges[i + 1]`, evenly. Its memory is reused,
/// because plans are also made in programs whose threads have small stacks.
#[derive(Clone, Debug)]
pub(crate) struct Density {
    pub(crate) edges: Vec<f32>,
    pub(crate) mass: Vec<f32>,
    pub(crate) cells: usize,
    /// Gaps longer than the last edge.
    pub(crate) tail: f32,
    leads: Leads,
    /// From, to, and how many gaps.
    boxes: Vec<(f32, f32, f32)>,
}

/// The mass assumed for gaps never seen: this many are longer than all others.
const UNSEEN: f32 = 0.5;

impl Density {
    pub(crate) fn new() -> Self {
        let (edges, mass, boxes) = (vec![0.0; CELLS + 1], vec![0.0; CELLS], vec![(0.0, 0.0, 0.0); BOXES * 2]);
        Self { edges, mass, cells: 0, tail: UNSEEN, leads: [0.0; 8], boxes }
    }

    const fn begin(&mut self, leads: Leads) {
        (self.cells, self.tail, self.leads) = (0, UNSEEN, leads);
    }

    fn end(&self) -> f32 {
        self.edges[self.cells]
    }

    fn push(&mut self, hi: f32, mass: f32) {
        if self.cells < CELLS {
            self.mass[self.cells] = mass;
            self.cells += 1;
            self.edges[self.cells] = hi;
        } else {
            self.tail += mass;
        }
    }

    /// Adds a box above all earlier ones, with an empty cell before it if it does not touch them, and with edges ahead
    /// of it where a timer may start if the box is denser than the one before.
    fn push_box(&mut self, lo: f32, hi: f32, mass: f32) {
        let lo = lo.max(self.end());
        if lo > self.end() {
            self.push(lo, 0.0);
        }
        // Not narrower than the clock's resolution.
        let hi = hi.max(lo + 0.01).max(lo * (1.0 + 4.0 * f32::EPSILON));
        if self.cells > 0 && self.cells + 12 < CELLS {
            let at = self.cells - 1;
            let (start, width, before) = (self.edges[at], self.end() - self.edges[at], self.mass[at]);
            if before / width < mass / (hi - lo) / 3.0 {
                let leads = self.leads.into_iter().filter(|lead| *lead < width);
                let cuts = leads.map(|lead| lo - lead);
                self.cells = at;
                let mut from = start;
                for cut in cuts.chain([lo]) {
                    if cut > from {
                        self.push(cut, before * (cut - from) / width);
                        from = cut;
                    }
                }
            }
        }
        self.push(hi, mass);
    }

    /// Makes it from single gaps, and sorts them.
    ///
    /// Each gap becomes a box as wide as the distance to the gaps next to it: narrow where many are alike, wide where a
    /// gap is alone.
    pub(crate) fn be_of_gaps(&mut self, gaps: &mut [f32], leads: Leads) {
        self.begin(leads);
        gaps.sort_unstable_by(f32::total_cmp);
        let count = gaps.len();
        let adjacent = if count < 64 { 2 } else { 4 };
        let spread = |at: usize| {
            let from = at.saturating_sub(adjacent);
            let to = (at + adjacent).min(count - 1);
            let span = adjacent.min(count - 1);
            let widths = (from..=to - span.min(to)).map(|lo| (lo, (lo + span).min(count - 1)));
            let nearest = widths
                .map(|(lo, hi)| (gaps[at] - gaps[lo]).max(gaps[hi] - gaps[at]))
                .fold(f32::INFINITY, f32::min);
            // A single gap is taken for any gap of about the same octave.
            if count == 1 { gaps[at] * 0.03 } else { nearest }.clamp(0.05, 0.5 * gaps[at].max(0.1))
        };
        let per_box = count.div_ceil(BOXES).max(1);
        let mut boxes = std::mem::take(&mut self.boxes);
        let mut held = 0;
        let mut at = 0;
        while at < count && held < boxes.len() {
            let first = at;
            let lo = gaps[at] - spread(at);
            let mut hi = gaps[at] + spread(at);
            at += 1;
            while at < count && at - first < per_box {
                let reach = spread(at);
                if gaps[at] - reach > hi {
                    break;
                }
                hi = hi.max(gaps[at] + reach);
                at += 1;
            }
            // Boxes that overlap meet half way.
            if at < count && gaps[at] - spread(at) < hi {
                hi = f32::midpoint(gaps[at - 1], gaps[at]);
            }
            let lo = lo.max(0.0).max(if held > 0 { boxes[held - 1].1 } else { 0.0 });
            boxes[held] = (lo, hi.max(lo), (at - first) as f32);
            held += 1;
        }
        self.push_clusters(&boxes[..held]);
        self.boxes = boxes;
    }

    /// Adds boxes. Around each cluster of them it leaves room for values not seen yet, with the mass of one gap, and
    /// wider the fewer gaps there are.
    fn push_clusters(&mut self, boxes: &[(f32, f32, f32)]) {
        let mut from = 0;
        while from < boxes.len() {
            let mut to = from + 1;
            while to < boxes.len() && boxes[to].0 <= boxes[to - 1].1 * 1.001 + 0.1 {
                to += 1;
            }
            let cluster = &boxes[from..to];
            let (lo, hi) = (cluster[0].0, cluster[cluster.len() - 1].1);
            let mass: f32 = cluster.iter().map(|(_, _, mass)| mass).sum();
            let reach = ((hi - lo).max(0.04 * lo) / mass.sqrt()).max(0.1);
            let below = (lo - reach).max(f32::midpoint(self.end(), lo));
            self.push_box(below, lo, UNSEEN);
            cluster.iter().for_each(|(lo, hi, mass)| self.push_box(*lo, *hi, *mass));
            let above = boxes.get(to).map_or(hi + reach, |next| (hi + reach).min(f32::midpoint(hi, next.0)));
            self.push_box(hi, above, UNSEEN);
            from = to;
        }
    }

    /// Makes it from a histogram: adjacent buckets are joined until they hold enough gaps to be significant.
    pub(crate) fn be_of_histogram(&mut self, histogram: &Decaying, leads: Leads) {
        self.begin(leads);
        let enough = histogram.total() / BOXES as f32;
        let mut open: Option<(f32, f32, f32)> = None;
        for (lo, hi, mass) in histogram.buckets() {
            open = match open {
                None => Some((lo, hi, mass)),
                // Buckets are joined if they touch, or nearly so, but never a sparse stretch to a dense one.
                Some((from, to, held))
                    if lo < to * 1.1 + 0.1 && held + mass < enough && hi < from * 2.0 + 1.0 =>
                {
                    Some((from, hi, held + mass))
                }
                Some((from, to, held)) => {
                    self.push_box(from, to, held);
                    Some((lo, hi, mass))
                }
            };
        }
        if let Some((lo, hi, mass)) = open {
            self.push_box(lo, hi, mass);
        }
    }

    /// The number of all gaps, including those beyond the last cell.
    pub(crate) fn total(&self) -> f32 {
        self.mass[..self.cells].iter().sum::<f32>() + self.tail
    }
}
