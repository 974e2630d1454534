//! Whether there is a place for one more program, and which one gives its place up: a program that is connected and has no ring must
//! not keep others out for ever.

use twinpath_time::{Duration, Instant};

use crate::ProgramLimits;

/// A program that has no ring, and has been silent for this time, may lose its place: normally a program asks as soon
/// as it connects.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// A program as it counts here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupant {
    pub(crate) user: u32,
    pub(crate) has_rings: bool,
    /// When it connected, or said something last.
    pub(crate) heard_at: Instant,
}

/// What becomes of a program that wants to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    /// Of the program at this position.
    Of(usize),
    /// The user has as many as it may.
    UserFull,
    /// There are as many as there may be.
    Full,
}

/// The place for one more program of a user.
pub(crate) fn for_one_of(user: u32, programs: &[Occupant], limits: ProgramLimits, now: Instant) -> Place {
    let count = |user: u32| programs.iter().filter(|program| program.user == user).count();
    // Of those without a ring the one that has been silent for longest.
    let silent = |may: &dyn Fn(&Occupant) -> bool| {
        let without = programs.iter().enumerate().filter(|(_, program)| !program.has_rings && may(program));
        without.min_by_key(|(_, program)| program.heard_at).map(|(at, _)| Place::Of(at))
    };
    let is_silent = |program: &Occupant| program.heard_at + SILENCE <= now;
    let own = count(user);
    if own >= limits.programs_per_user as usize {
        let is_full = programs.len() >= limits.programs as usize;
        return silent(&|program| program.user == user && is_silent(program)).unwrap_or(if is_full {
            Place::Full
        } else {
            Place::UserFull
        });
    }
    if programs.len() < limits.programs as usize {
        return Place::Free;
    }
    // A user who connects again and again must leave others their share, however briefly its programs are silent.
    let of_greedier = |program: &Occupant| count(program.user) > own + 1;
    silent(&|program| is_silent(program) || of_greedier(program)).unwrap_or(Place::Full)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ProgramLimits =
        ProgramLimits { programs: 6, programs_per_user: 4, sockets_per_program: 8, sockets_per_user: 64 };
    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);

    /// A program of a user that was heard this many ms ago.
    fn silent(user: u32, ms: u64) -> Occupant {
        let heard_at = Instant::from_nanos(NOW.as_nanos() - ms * 1_000_000);
        Occupant { user, has_rings: false, heard_at }
    }

    fn busy(user: u32) -> Occupant {
        Occupant { has_rings: true, ..silent(user, 60_000) }
    }

    #[test]
    fn a_silent_program_gives_its_place_up_to_one_of_its_user() {
        let mut programs = vec![busy(1), silent(1, 3_000), silent(1, 5_000)];
        assert_eq!(for_one_of(1, &programs, LIMITS, NOW), Place::Free);
        programs.push(silent(1, 100));
        assert_eq!(for_one_of(1, &programs, LIMITS, NOW), Place::Of(2));
        // Those that were heard just now may be about to ask.
        let programs = [busy(1), silent(1, 1_000), silent(1, 100), silent(1, 0)];
        assert_eq!(for_one_of(1, &programs, LIMITS, NOW), Place::UserFull);
        assert_eq!(for_one_of(2, &programs, LIMITS, NOW), Place::Free);
    }

    #[test]
    fn one_with_rings_keeps_its_place() {
        let programs = [busy(1), busy(1), busy(1), busy(2), busy(2), busy(2)];
        assert_eq!(for_one_of(3, &programs, LIMITS, NOW), Place::Full);
    }

    #[test]
    fn users_who_connect_all_the_time_keep_nobody_else_out() {
        let programs = [silent(1, 0), silent(1, 1), silent(1, 2), silent(2, 0), silent(2, 0), silent(2, 0)];
        assert_eq!(for_one_of(3, &programs, LIMITS, NOW), Place::Of(2));
        // A user who has as many as the others waits until one of those has been silent.
        assert_eq!(for_one_of(2, &programs, LIMITS, NOW), Place::Full);
    }
}
