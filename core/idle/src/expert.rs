//! The experts: predictors of the next packet.

/// A predictor of when the next packet comes. Decision 0009 (`docs/decisions`) says what each brings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expert {
    /// No prediction: spins for as long as a wake-up costs. This costs at most twice the optimum without
    /// predictions.
    Unknowing,
    /// Spins for this long after each packet, us, then sleeps. 0: sleeps immediately; infinity: spins as long as
    /// allowed.
    Spin(f32),
    /// The mean of the last eight gaps. The worker is woken this long before the predicted arrival, and spins until
    /// the same time after it; in medians of the timer's lateness.
    Mean(f32),
    /// The distribution of the last 24 gaps.
    Last24,
    /// The distribution of the last 512 gaps.
    Last512,
    /// A decaying histogram of the last few thousand gaps.
    Histogram,
    /// The distribution of the gaps at the same place in earlier bursts.
    InBurst,
}

impl Expert {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Unknowing,
        Self::Spin(0.0),
        Self::Spin(32.0),
        Self::Spin(512.0),
        Self::Spin(f32::INFINITY),
        Self::Mean(0.35),
        Self::Mean(0.8),
        Self::Mean(1.8),
        Self::Last24,
        Self::Last512,
        Self::Histogram,
        Self::InBurst,
    ];
}
