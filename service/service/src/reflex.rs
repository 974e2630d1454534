//! Reflexes: replies that a verified program in the kernel may send without the service, while the worker
//! sleeps.
//!
//! A service declares which ones ([`Reflex`]). Either each reply equals its request, or the service names
//! replies that may be kept ([`Datagram::answer_and_keep`](crate::Datagram::answer_and_keep)), and
//! withdraws them when the data behind them has changed ([`KeptReplies::withdraw`]).

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};

use twinpath_reflex::{
    Generations, Name, NotKept, Publication, SHAPES_MAX, Shape, Version, withdraw, withdraw_all,
};
use twinpath_time::{Duration, Instant};

/// Maximum number of instances, simultaneous or successive, in which one [`KeptReplies`] and its clones may
/// be used.
pub const BINDINGS_MAX: usize = 256;

/// Which replies of a service may be sent without it.
#[derive(Clone, Debug, Default)]
pub enum Reflex {
    /// None.
    #[default]
    Never,
    /// Each reply to a datagram is the request, and each reply to a frame is the frame with its addresses
    /// swapped. Requests have no other effect: the service does not see those that are answered this way.
    Mirror,
    /// Those that the service keeps.
    Kept(KeptReplies),
}

/// How long a reply may be repeated, and for which requests.
#[derive(Clone, Copy, Debug)]
pub struct Keep<'a> {
    /// Which bytes of the request do not matter, and which of them the reply repeats: one of the shapes
    /// with which the service's [`KeptReplies`] was made.
    pub shape: &'a Shape,
    /// The version of the data from which the reply was made, taken before that data was read:
    /// [`Datagram::version_of`].
    ///
    /// [`Datagram::version_of`]: crate::Datagram::version_of
    pub version: Version,
    /// How long the reply is valid, at most [`HOLD_MAX`](twinpath_reflex::HOLD_MAX).
    pub hold: Duration,
}

/// The kept replies of a service. All clones are equal. Each clone of the service has one, and so has any
/// other code, on any thread, that changes the service's state.
///
/// The guarantee: once [`Self::withdraw`] has returned, no request that arrives gets a reply that was made
/// from state of the name before the call. That includes replies of a late worker: it has read the version
/// before the state, so a reply that it publishes after the withdrawal is void.
///
/// ```
/// use std::collections::HashMap;
/// use std::net::SocketAddr;
/// use std::sync::{Arc, PoisonError, RwLock};
/// use twinpath_service::{
///     Answer, Datagram, Duration, Instant, Keep, KeptReplies, Name, Output, Reason, Reflex, Service, Shape,
/// };
///
/// /// A request is two bytes of the client's choice and a key. The reply is these two bytes and the value.
/// const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
///
/// #[derive(Clone)]
/// struct Store {
///     values: Arc<RwLock<HashMap<Vec<u8>, Vec<u8>>>>,
///     kept: KeptReplies,
/// }
///
/// impl Store {
///     /// Any thread may call it.
///     fn set(&self, key: &[u8], value: &[u8]) {
///         self.values.write().unwrap_or_else(PoisonError::into_inner).insert(key.to_vec(), value.to_vec());
///         // After the change, and before anybody is told of it.
///         self.kept.withdraw(Name::of(key));
///     }
/// }
///
/// impl Service for Store {
///     type Connection = ();
///
///     fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
///         let Some((id, key)) = datagram.request().split_at_checked(2) else { return Answer::Nothing };
///         // Before the value is read.
///         let version = datagram.version_of(key);
///         let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
///         let Some(value) = values.get(key) else { return Answer::Nothing };
///         let reply = [id, value].concat();
///         datagram.answer_and_keep(&reply, &Keep { shape: &BY_ID, version, hold: Duration::from_secs(60) })
///     }
///
///     fn reflex(&self) -> Reflex {
///         Reflex::Kept(self.kept.clone())
///     }
///
///     fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
///         Ok(())
///     }
///
///     /// A line over TCP sets a value, which withdraws as well.
///     fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
///         let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
///         if output.room() < 3 {
///             return 0;
///         }
///         if let Some(space) = input[..end].iter().position(|byte| *byte == b' ') {
///             self.set(&input[..space], &input[space + 1..end]);
///         }
///         if output.write(b"ok\n") { end + 1 } else { 0 }
///     }
/// }
/// # let store = Store { values: Arc::default(), kept: KeptReplies::new(&[BY_ID]) };
/// # store.set(b"key", b"value");
/// ```
#[derive(Clone)]
pub struct KeptReplies {
    shared: Arc<Shared>,
}

struct Shared {
    shapes: Box<[Shape]>,
    /// The generations of each instance that uses it, in the order in which they were bound.
    bound: [OnceLock<Weak<dyn Generations>>; BINDINGS_MAX],
}

/// There is no room for one more instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a service's kept replies can be used in {BINDINGS_MAX} instances: make it anew for the next one")]
pub struct TooManyBindings;

impl std::fmt::Debug for KeptReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptReplies").field("shapes", &self.shared.shapes).finish_non_exhaustive()
    }
}

impl KeptReplies {
    /// No reply is kept yet. Each request that can get a kept reply has one of `shapes`, at most
    /// [`SHAPES_MAX`]. A request is looked up by the shapes in this order, so the most frequent one should
    /// be first.
    ///
    /// # Panics
    /// There are more shapes than that.
    #[must_use]
    pub fn new(shapes: &[Shape]) -> Self {
        assert!(shapes.len() <= SHAPES_MAX, "a service has at most {SHAPES_MAX} shapes");
        let bound = [const { OnceLock::new() }; BINDINGS_MAX];
        Self { shared: Arc::new(Shared { shapes: shapes.into(), bound }) }
    }

    /// The shapes, by number.
    #[must_use]
    pub fn shapes(&self) -> &[Shape] {
        &self.shared.shapes
    }

    /// Withdraws the replies that were made from state of this name. Call it after the state has changed,
    /// and before anybody is told of the change, for example by the reply to the call that made it. It
    /// takes one atomic increment for each instance, and never waits. It may be called on any thread, and
    /// in a forked child.
    pub fn withdraw(&self, name: impl Into<Name>) {
        let name = name.into();
        self.each(|words| withdraw(words.words(), name));
    }

    /// Withdraws all replies, for example because all state was reloaded. It takes about 100 us.
    pub fn withdraw_all(&self) {
        self.each(|words| withdraw_all(words.words()));
    }

    fn each(&self, withdraw: impl Fn(&dyn Generations)) {
        // An instance that is bound concurrently is either seen here, or sees the changed state: one of the
        // two fences comes first.
        fence(Ordering::SeqCst);
        let bound = self.shared.bound.iter().map_while(OnceLock::get);
        // The replies of an instance that has ended are void and gone.
        bound.filter_map(Weak::upgrade).for_each(|words| withdraw(&*words));
    }

    /// Adds the generations of an instance, before the instance takes the first version from them. The
    /// instance keeps them until no program repeats its replies any more.
    ///
    /// # Errors
    /// There have been [`BINDINGS_MAX`] instances already: nothing may be kept in this one.
    pub fn bind(&self, generations: &Arc<dyn Generations>) -> Result<(), TooManyBindings> {
        let mut free = self.shared.bound.iter();
        let bound = free.any(|place| place.set(Arc::downgrade(generations)).is_ok());
        fence(Ordering::SeqCst);
        if bound { Ok(()) } else { Err(TooManyBindings) }
    }
}

/// The store for the kept replies of one service on one worker.
///
/// Replies that it does not keep, it counts itself, by [`NotKept`](twinpath_reflex::NotKept): the request
/// is answered in any case.
pub trait Keeper: Send {
    /// The present version of a name, in the generations that the service's [`KeptReplies`] was
    /// [bound](KeptReplies::bind) to.
    fn version_of(&self, name: Name) -> Version;

    /// Whether a reply need not be kept now, because an equal one is kept already.
    fn is_covered(&self, _now: Instant) -> bool {
        false
    }

    /// Keeps a reply. It must not block.
    fn keep(&mut self, now: Instant, reply: &Publication<'_>);

    /// Counts a reply that could not be kept.
    fn not_kept(&mut self, why: NotKept);
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use twinpath_reflex::{Table, WhyNot, generations};

    use super::*;
    use crate::{Answer, Beside, Datagram};

    const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

    /// The table and the generations of an instance without programs: the test looks in the table instead.
    #[derive(Clone)]
    struct Local {
        table: Arc<Mutex<Table>>,
        words: Arc<dyn Generations>,
        not_kept: Arc<Mutex<Vec<NotKept>>>,
    }

    impl Local {
        fn new(kept: &KeptReplies) -> Self {
            let words: Arc<dyn Generations> = Arc::new(generations());
            kept.bind(&words).expect("room");
            Self { table: Arc::new(Mutex::new(Table::new(64, 0))), words, not_kept: Arc::default() }
        }

        fn beside(&self) -> Beside {
            Beside { keeper: Some(Box::new(self.clone())), ..Beside::default() }
        }

        fn find(&self, now: Instant, request: &[u8]) -> Result<Vec<u8>, WhyNot> {
            let mut reply = Vec::new();
            let mut table = self.table.lock().expect("no panic");
            table.find(now, 0, &[BY_ID], self.words.words(), request, &mut reply).map(|()| reply)
        }
    }

    impl Keeper for Local {
        fn version_of(&self, name: Name) -> Version {
            Version::now(self.words.words(), name)
        }

        fn keep(&mut self, now: Instant, reply: &Publication<'_>) {
            // The test checks what is kept.
            let _ = self.table.lock().expect("no panic").publish(now, 0, &[BY_ID], self.words.words(), reply);
        }

        fn not_kept(&mut self, why: NotKept) {
            self.not_kept.lock().expect("no panic").push(why);
        }
    }

    fn ask(beside: &mut Beside, now: Instant, hold: Duration, changed: impl FnOnce()) -> Answer {
        let peer = "192.0.2.1:9".parse().expect("an address");
        let mut buffer = *b"01key, and room";
        let mut datagram = Datagram::new(now, peer, peer, &mut buffer, 5).with(beside);
        let version = datagram.version_of(&b"key"[..]);
        changed();
        datagram.answer_and_keep(b"01value", &Keep { shape: &BY_ID, version, hold })
    }

    #[test]
    fn a_reply_is_kept_until_it_is_withdrawn_or_too_old() {
        let kept = KeptReplies::new(&[BY_ID]);
        let local = Local::new(&kept);
        let (mut beside, second) = (local.beside(), Duration::from_secs(1));
        assert_eq!(local.find(Instant::ZERO, b"77key"), Err(WhyNot::Unknown));
        assert_eq!(ask(&mut beside, Instant::ZERO, second, || ()), Answer::Reply { len: 7 });
        assert_eq!(local.find(Instant::ZERO, b"77key"), Ok(b"77value".to_vec()));
        assert_eq!(local.find(Instant::ZERO + second, b"77key"), Err(WhyNot::Expired));
        kept.withdraw(&b"other"[..]);
        assert!(local.find(Instant::ZERO, b"77key").is_ok());
        kept.withdraw(&b"key"[..]);
        assert_eq!(local.find(Instant::ZERO, b"77key"), Err(WhyNot::Withdrawn));
        let _ = ask(&mut beside, Instant::ZERO, second, || ());
        assert!(local.find(Instant::ZERO, b"77key").is_ok());
        kept.clone().withdraw_all();
        assert_eq!(local.find(Instant::ZERO, b"77key"), Err(WhyNot::Withdrawn));
        let _ = ask(&mut beside, Instant::ZERO, Duration::MAX, || ());
        let longest = Instant::ZERO + twinpath_reflex::HOLD_MAX;
        assert!(local.find(longest - Duration::from_nanos(1), b"77key").is_ok());
        assert_eq!(local.find(longest, b"77key"), Err(WhyNot::Expired));
    }

    #[test]
    fn a_reply_that_is_late_is_answered_and_not_kept() {
        let kept = KeptReplies::new(&[BY_ID]);
        let local = Local::new(&kept);
        let late = ask(&mut local.beside(), Instant::ZERO, Duration::from_secs(1), || {
            kept.withdraw(&b"key"[..]);
        });
        assert_eq!(late, Answer::Reply { len: 7 });
        assert_eq!(local.find(Instant::ZERO, b"77key"), Err(WhyNot::Unknown));
    }

    #[test]
    fn a_request_that_the_service_may_have_changed_has_no_kept_reply() {
        let kept = KeptReplies::new(&[BY_ID]);
        let local = Local::new(&kept);
        let (mut beside, peer) = (local.beside(), "192.0.2.1:9".parse().expect("an address"));
        let mut buffer = *b"01key, and room";
        let mut datagram = Datagram::new(Instant::ZERO, peer, peer, &mut buffer, 5).with(&mut beside);
        let version = datagram.version_of(&b"key"[..]);
        datagram.buffer()[2..5].copy_from_slice(b"KEY");
        let keep = Keep { shape: &BY_ID, version, hold: Duration::from_secs(1) };
        assert_eq!(datagram.answer_and_keep(b"01value", &keep), Answer::Reply { len: 7 });
        for request in [b"77key", b"77KEY"] {
            assert_eq!(local.find(Instant::ZERO, request), Err(WhyNot::Unknown));
        }
        assert_eq!(*local.not_kept.lock().expect("no panic"), [NotKept::RequestChanged]);
    }

    #[test]
    fn without_a_keeper_the_reply_is_answered_alone() {
        let answer = ask(&mut Beside::default(), Instant::ZERO, Duration::from_secs(1), || ());
        assert_eq!(answer, Answer::Reply { len: 7 });
        KeptReplies::new(&[]).withdraw(7);
    }

    #[test]
    fn each_instance_that_uses_them_gets_the_withdrawal() {
        let kept = KeptReplies::new(&[BY_ID]);
        let mut instances: Vec<Local> = (0..BINDINGS_MAX).map(|_| Local::new(&kept)).collect();
        for local in &instances {
            let _ = ask(&mut local.beside(), Instant::ZERO, Duration::from_secs(1), || ());
        }
        assert!(instances.iter().all(|local| local.find(Instant::ZERO, b"77key").is_ok()));
        let ended = Arc::downgrade(&instances.remove(0).words);
        assert!(ended.upgrade().is_none(), "its memory is free once it has ended");
        kept.withdraw(&b"key"[..]);
        assert!(instances.iter().all(|local| local.find(Instant::ZERO, b"77key") == Err(WhyNot::Withdrawn)));
        let one_more: Arc<dyn Generations> = Arc::new(generations());
        assert_eq!(kept.bind(&one_more), Err(TooManyBindings));
    }
}
