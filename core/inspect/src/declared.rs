//! Declarations of counters: all that the report, `twinpath show`, the metrics and docs/metrics.md say about each
//! of them.
//!
//! The macro [`counters`](crate::counters) defines the counters of one thread, each in one entry, such as
//! `frames_in: Counter => counter("twinpath_queue_frames_received"), column("frames in");` with a doc comment. This
//! comment is the help text of the metric. The name is the field's name in the report. After `=>` come methods of
//! [`Declared`]. The macro [`counts`](crate::counts) does the same for values that control counts or computes.

use crate::{Counter, Drops, Histogram, Times};

/// A count of the set `T`, as declared.
#[derive(Debug)]
pub struct Declared<T: 'static> {
    /// Its name, in the struct and in the report.
    pub name: &'static str,
    /// The metric that it is, or belongs to.
    pub metric: Option<Metric>,
    /// Its column in `twinpath show`.
    pub column: Option<Column<T>>,
    help: &'static str,
    read: fn(&T) -> Reading<'_>,
}

/// A count as a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name of the family, without the suffix that its type adds in the text.
    pub family: &'static str,
    /// Its type.
    pub kind: MetricKind,
    /// The description of the family, if it differs from the description of this count.
    about: &'static str,
    /// The label by which it differs from the other counts of the family, with its value.
    pub label: Option<(&'static str, &'static str)>,
    /// Whether the count is in ns; the metric is in s.
    pub is_ns: bool,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases, except that it restarts when its source is attached again.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Times in buckets.
    Histogram,
    /// Always 1: the information is in its labels.
    Info,
}

impl MetricKind {
    /// The name in the text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A count as a column of `twinpath show`.
#[derive(Debug)]
pub struct Column<T: 'static> {
    /// Its header.
    pub header: &'static str,
    /// The contents of its cells, if they are more than the count.
    pub cell: Option<fn(&T) -> String>,
}

/// The value of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// A number.
    Count(u64),
    /// The values of a histogram.
    Times(&'a Times),
}

impl<T> Declared<T> {
    /// A count with that name and help text, and how it is read; the methods below set its other properties.
    #[must_use]
    pub const fn of(name: &'static str, help: &'static str, read: fn(&T) -> Reading<'_>) -> Self {
        Self { name, metric: None, column: None, help, read }
    }

    /// Makes it a metric of this family that only increases.
    #[must_use]
    pub const fn counter(self, family: &'static str) -> Self {
        self.metric(family, MetricKind::Counter)
    }

    /// Makes it a metric of this family that increases and decreases.
    #[must_use]
    pub const fn gauge(self, family: &'static str) -> Self {
        self.metric(family, MetricKind::Gauge)
    }

    /// Makes it a metric of this family with times in buckets.
    #[must_use]
    pub const fn histogram(self, family: &'static str) -> Self {
        self.metric(family, MetricKind::Histogram)
    }

    const fn metric(mut self, family: &'static str, kind: MetricKind) -> Self {
        self.metric = Some(Metric { family, kind, about: "", label: None, is_ns: false });
        self
    }

    /// Sets the description of a family with several counts. It must be set on each of them.
    #[must_use]
    pub const fn about(mut self, about: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.about = about;
        }
        self
    }

    /// Sets the label that distinguishes it from the other counts of the family.
    #[must_use]
    pub const fn label(mut self, name: &'static str, value: &'static str) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.label = Some((name, value));
        }
        self
    }

    /// Says that the count is in ns. The metric is in s.
    #[must_use]
    pub const fn ns(mut self) -> Self {
        if let Some(metric) = &mut self.metric {
            metric.is_ns = true;
        }
        self
    }

    /// Makes it a column of `show` with this header.
    #[must_use]
    pub const fn column(mut self, header: &'static str) -> Self {
        self.column = Some(Column { header, cell: None });
        self
    }

    /// Sets the contents of its cells, instead of the bare count.
    #[must_use]
    pub const fn cell(mut self, cell: fn(&T) -> String) -> Self {
        if let Some(column) = &mut self.column {
            column.cell = Some(cell);
        }
        self
    }

    /// What it counts: one sentence.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help.trim()
    }

    /// The description of its family of metrics: one sentence.
    #[must_use]
    pub fn about_family(&self) -> &'static str {
        self.metric.map(|metric| metric.about).filter(|about| !about.is_empty()).unwrap_or(self.help())
    }

    /// Its value.
    #[must_use]
    pub fn read<'a>(&self, counts: &'a T) -> Reading<'a> {
        (self.read)(counts)
    }

    /// The contents of its cell.
    #[must_use]
    pub fn cell_of(&self, counts: &T) -> String {
        match (self.column.as_ref().and_then(|column| column.cell), self.read(counts)) {
            (Some(cell), _) => cell(counts),
            (None, Reading::Count(count)) => count.to_string(),
            (None, Reading::Times(times)) => times.count().to_string(),
        }
    }
}

/// A set in which a thread counts, and which control reads.
pub trait Live {
    /// The result of reading it.
    type Read;

    /// The value now.
    fn read(&self) -> Self::Read;
}

impl Live for Counter {
    type Read = u64;

    fn read(&self) -> u64 {
        self.get()
    }
}

impl Live for Histogram {
    type Read = Times;

    fn read(&self) -> Times {
        self.read()
    }
}

/// The total number of drops, for all reasons.
impl Live for Drops {
    type Read = u64;

    fn read(&self) -> u64 {
        self.happened().map(|(_, count)| count).sum()
    }
}

/// A placeholder for a counter whose value is not counted, but computed when the set is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Computed;

impl Live for Computed {
    type Read = u64;

    fn read(&self) -> u64 {
        0
    }
}

/// A count that was read.
pub trait Read {
    /// As the value of a [`Declared`].
    fn reading(&self) -> Reading<'_>;

    /// Adds that of another thread.
    fn add(&mut self, other: &Self);
}

impl Read for u64 {
    fn reading(&self) -> Reading<'_> {
        Reading::Count(*self)
    }

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl Read for u32 {
    fn reading(&self) -> Reading<'_> {
        Reading::Count((*self).into())
    }

    fn add(&mut self, other: &Self) {
        *self += other;
    }
}

impl Read for Times {
    fn reading(&self) -> Reading<'_> {
        Reading::Times(self)
    }

    fn add(&mut self, other: &Self) {
        *self = self.with(other);
    }
}

/// A struct with counts that are declared.
pub trait Counts: Sized + 'static {
    /// Their declarations, in the order of the columns of `show`.
    const DECLARED: &'static [Declared<Self>];
}

/// Defines counters that one thread writes: their struct; for each group, the struct that they are read into, which
/// is part of a report; and the [`Declared`] of each. Counters that are not shown on their own go into the second
/// pair of braces.
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])*
        pub struct $Counters:ident {
            $(
                $(#[$about_group:meta])*
                $Group:ident {
                    $(
                        $(#[doc = $help:literal])+
                        $(#[serde($($form:tt)*)])?
                        $name:ident: $Cell:ty $(=> $($property:ident($($argument:expr),*)),+)?;
                    )+
                }
            )+
        } and {
            $($(#[$about_other:meta])* $seen:vis $other:ident: $Other:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $Counters {
            $($($(#[doc = $help])+ pub $name: $Cell,)+)+
            $($(#[$about_other])* $seen $other: $Other,)*
        }

        $(
            $crate::counts! {
                $(#[$about_group])*
                pub struct $Group {} and {
                    $(
                        $(#[doc = $help])+
                        $(#[serde($($form)*)])?
                        $name: <$Cell as $crate::Live>::Read $(=> $($property($($argument),*)),+)?;
                    )+
                }
            }

            impl From<&$Counters> for $Group {
                fn from(counters: &$Counters) -> Self {
                    Self { $($name: $crate::Live::read(&counters.$name),)+ }
                }
            }

            impl $Group {
                /// The sum over several threads.
                #[must_use]
                pub fn sum<'a>(counters: impl IntoIterator<Item = &'a $Counters>) -> Self {
                    counters.into_iter().map(Self::from).fold(Self::default(), Self::with)
                }

                /// The sum with the counts of another thread.
                #[must_use]
                pub fn with(mut self, other: Self) -> Self {
                    $($crate::Read::add(&mut self.$name, &other.$name);)+
                    self
                }
            }
        )+
    };
}

/// Defines a struct of a report with counts in it, and the [`Declared`] of each. The counts go into the second pair
/// of braces.
#[macro_export]
macro_rules! counts {
    (
        $(#[$about:meta])*
        pub struct $Counts:ident {
            $($(#[$about_other:meta])* pub $other:ident: $Other:ty,)*
        } and {
            $(
                $(#[doc = $help:literal])+
                $(#[serde($($form:tt)*)])?
                $name:ident: $Type:ty $(=> $($property:ident($($argument:expr),*)),+)?;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, $crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(default, crate = "twinpath_inspect::serde")]
        pub struct $Counts {
            $($(#[$about_other])* pub $other: $Other,)*
            $($(#[doc = $help])+ $(#[serde($($form)*)])? pub $name: $Type,)+
        }

        impl $crate::Counts for $Counts {
            const DECLARED: &'static [$crate::Declared<Self>] = &[
                $($crate::Declared::<Self>::of(
                    stringify!($name),
                    concat!($($help),+),
                    |counts| $crate::Read::reading(&counts.$name),
                )$($(.$property($($argument),*))+)?,)+
            ];
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macros are for what other crates see")]
mod tests {
    use super::*;

    counters! {
        /// What a thread of this test counts.
        pub struct TestCounters {
            /// What is read of it.
            #[derive(PartialEq, Eq)]
            TestCounts {
                /// Frames received.
                frames_in: Counter => counter("frames"), about("Frames, by direction."), label("direction", "in"),
                    column("frames in"), cell(|counts: &TestCounts| format!("{} of {}", counts.frames_in, counts.whole));
                /// Time spent,
                /// in all.
                #[serde(rename = "spent")]
                time: Histogram => histogram("time_seconds");
                /// All of them.
                whole: Computed => column("whole");
            }
        } and {
            /// Errors.
            pub errors: Counter,
        }
    }

    #[test]
    fn a_declared_counter_is_counted_read_added_up_and_told_by_the_one_entry() {
        let counters = [TestCounters::default(), TestCounters::default()];
        counters[0].frames_in.add(2);
        counters[1].frames_in.add(3);
        counters[1].time.record(10, 4);
        counters[1].errors.add(1);
        let mut sum = TestCounts::sum(&counters);
        sum.whole = 9;
        let [frames, time, whole] = TestCounts::DECLARED else { panic!("three are declared") };
        assert_eq!(
            (frames.name, frames.help(), time.help()),
            ("frames_in", "Frames received.", "Time spent, in all.")
        );
        let metric = frames.metric.unwrap();
        assert_eq!(
            (metric.family, metric.kind, metric.label),
            ("frames", MetricKind::Counter, Some(("direction", "in")))
        );
        assert_eq!(
            (frames.about_family(), time.about_family()),
            ("Frames, by direction.", "Time spent, in all.")
        );
        assert_eq!((frames.read(&sum), whole.read(&sum)), (Reading::Count(5), Reading::Count(9)));
        assert_eq!(time.read(&sum), Reading::Times(&counters[1].time.read()));
        assert_eq!((frames.cell_of(&sum).as_str(), whole.cell_of(&sum).as_str()), ("5 of 9", "9"));
        assert!(whole.metric.is_none() && time.column.is_none());
        assert_ne!(TestCounts::from(&counters[0]), sum);
    }
}
