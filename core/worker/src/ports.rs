//! The ports of a worker, found by number, and their queues with the frames that wait to leave.

use std::sync::Arc;

use twinpath_frame::{Burst, Frame, Meta, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::fit;
use twinpath_port::{
    Capabilities, CarriedPort, LinkState, PORTS_MAX, PortCounters, PortId, PortQueue, SentParts,
};

use crate::tap::Taps;

/// A port attached to a worker.
pub struct Attached {
    id: PortId,
    ifindex: u32,
    capabilities: Capabilities,
    counters: Arc<PortCounters>,
    /// The index of its queue.
    queue: u16,
    /// Whether the queue carries other ports as well.
    is_carried: bool,
}

impl Attached {
    /// Its name, which is stable while it is attached.
    #[must_use]
    pub const fn id(&self) -> PortId {
        self.id
    }

    /// Kernel index of the interface that it is on, 0 if there is none.
    #[must_use]
    pub const fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The longest frame that it sends, and the offloads that sent and received frames may have.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether its queue carries other ports as well.
    #[must_use]
    pub const fn is_carried(&self) -> bool {
        self.is_carried
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<PortCounters> {
        &self.counters
    }

    /// The only port of `queue`.
    fn alone(queue: &dyn PortQueue, place: u16) -> Self {
        let (capabilities, counters) = (queue.capabilities(), Arc::clone(queue.counters()));
        Self {
            id: queue.id(),
            ifindex: queue.ifindex(),
            capabilities,
            counters,
            queue: place,
            is_carried: false,
        }
    }

    /// A port of a queue that carries several.
    fn carried(port: &CarriedPort, queue_number: u16, place: u16) -> Self {
        Self {
            id: port.id(queue_number),
            ifindex: port.ifindex,
            capabilities: port.capabilities,
            counters: Arc::clone(&port.counters),
            queue: place,
            is_carried: true,
        }
    }
}

/// A queue of a worker, with the frames that leave through it in this turn.
pub(crate) struct Queue {
    pub(crate) queue: Box<dyn PortQueue>,
    /// Its port, while that is attached; [`Here::NOWHERE`] if it carries several.
    pub(crate) here: Here,
    outbox: Burst,
    /// It is in the list of queues to flush.
    is_touched: bool,
}

/// A port and its index among the worker's ports, for the duration of a call.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub(crate) port: PortId,
    pub(crate) place: u32,
}

impl Here {
    /// No port has this number.
    pub(crate) const NOWHERE: Self = Self { port: PortId { port: u16::MAX, queue: u16::MAX }, place: 0 };
}

impl Queue {
    /// Sends the waiting frames; captures get their copies first.
    fn transmit(&mut self, pool: &mut Pool, taps: &mut Taps) {
        let port = self.here.port;
        let alone = (port != Here::NOWHERE.port).then_some(port.port);
        taps.sent(&*self.queue, alone, self.outbox.frames());
        self.queue.transmit(pool, &mut self.outbox);
    }

    /// Adds a frame of a port to the waiting ones; sends those first if there is no room.
    #[inline(always)]
    fn enqueue(&mut self, mut frame: Frame, port: &Attached, pool: &mut Pool, taps: &mut Taps) {
        if port.is_carried {
            frame.meta_mut().port = port.id.port;
        }
        if self.outbox.room() == 0 {
            self.transmit(pool, taps);
        }
        if let Err(frame) = self.outbox.push(frame) {
            port.counters.drops.add(Reason::PortFull, 1);
            pool.release(frame);
        }
    }
}

/// The ports and queues of one worker. Only attaching allocates.
pub(crate) struct Ports {
    queues: Vec<Queue>,
    attached: Vec<Attached>,
    /// Index in `attached` plus one, by port number; 0: not attached. If a port has several queues, the first.
    by_number: Box<[u16]>,
    /// The indexes of the queues that have frames to send, or have not finished sending.
    touched: Vec<u16>,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self {
            queues: Vec::new(),
            attached: Vec::new(),
            by_number: vec![0; PORTS_MAX].into_boxed_slice(),
            touched: Vec::new(),
        }
    }

    pub(crate) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    pub(crate) fn queues_mut(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    pub(crate) fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// Whether there is no room for a further queue.
    pub(crate) fn is_full(&self) -> bool {
        self.queues.len() == PORTS_MAX
    }

    /// The index of a port, found by its number; valid until one is attached or detached.
    #[inline]
    pub(crate) fn place_of(&self, port: PortId) -> Option<usize> {
        match self.by_number.get(usize::from(port.port)) {
            Some(0) => None,
            Some(place) if self.attached[usize::from(*place) - 1].id == port => Some(usize::from(*place) - 1),
            _ => self.search(port),
        }
    }

    /// The index of the port with this number; if it has several queues, the first.
    #[inline]
    pub(crate) fn first_place_of(&self, port: u16) -> Option<usize> {
        usize::from(*self.by_number.get(usize::from(port))?).checked_sub(1)
    }

    /// Searches for a second or later queue of a port, and for a port with a number beyond the table.
    #[cold]
    fn search(&self, port: PortId) -> Option<usize> {
        self.attached.iter().position(|attached| attached.id == port)
    }

    /// The index of a queue.
    pub(crate) fn place_of_queue(&self, is_meant: impl Fn(&dyn PortQueue) -> bool) -> Option<usize> {
        self.queues.iter().position(|queue| is_meant(&*queue.queue))
    }

    /// The queue of the port at `place`.
    #[inline]
    pub(crate) fn queue_of(&self, place: usize) -> Option<&dyn PortQueue> {
        let attached = self.attached.get(place)?;
        Some(&*self.queues.get(usize::from(attached.queue))?.queue)
    }

    /// Adds a queue with its port, or with the ports that it carries. Returns how many ports there were before: the
    /// ports after these are new.
    pub(crate) fn add(&mut self, mut queue: Box<dyn PortQueue>) -> usize {
        let before = self.attached.len();
        // Fewer than `PORTS_MAX`, which fits.
        let place = self.queues.len() as u16;
        let queue_number = queue.id().queue;
        if let Some(carrier) = queue.carrier() {
            let carried = carrier.ports().all().iter();
            self.attached.extend(carried.map(|port| Attached::carried(port, queue_number, place)));
        } else {
            self.attached.push(Attached::alone(&*queue, place));
        }
        self.queues.push(Queue { queue, here: Here::NOWHERE, outbox: Burst::new(), is_touched: false });
        self.touched.reserve(self.queues.len());
        self.index();
        before
    }

    /// Adds a port to the queue that is to carry it. Returns its name.
    ///
    /// # Errors
    /// Returns the port if there is no such queue, or the queue does not take it.
    pub(crate) fn add_carried(&mut self, carrier: PortId, port: CarriedPort) -> Result<PortId, CarriedPort> {
        let Some(place) = self.place_of_queue(|queue| queue.id() == carrier) else { return Err(port) };
        let Some(queue) = self.queues[place].queue.carrier() else { return Err(port) };
        if self.attached.iter().any(|known| known.id.port == port.port) {
            return Err(port);
        }
        queue.add(port.clone())?;
        let attached = Attached::carried(&port, carrier.queue, place as u16);
        let id = attached.id;
        self.attached.push(attached);
        self.index();
        Ok(id)
    }

    /// Forgets a port, and removes it from its queue if that carries several.
    pub(crate) fn remove_port(&mut self, place: usize) -> PortId {
        let port = self.attached.remove(place);
        if port.is_carried
            && let Some(carrier) = self.queues[usize::from(port.queue)].queue.carrier()
        {
            carrier.remove(port.id.port);
        }
        self.index();
        port.id
    }

    /// Forgets one of the ports of the queue at `place`; `None` when none is left.
    pub(crate) fn remove_port_of(&mut self, place: usize) -> Option<PortId> {
        let port = self.attached.iter().position(|port| usize::from(port.queue) == place)?;
        let id = self.attached.remove(port).id;
        self.index();
        Some(id)
    }

    /// Removes the queue at `place` and forgets its ports; frames that wait to leave through it are released.
    pub(crate) fn remove_queue(&mut self, place: usize, pool: &mut Pool) -> Box<dyn PortQueue> {
        let Queue { queue, mut outbox, .. } = self.queues.remove(place);
        // Empty, unless the device went away in the middle of a turn.
        outbox.release(usize::MAX, pool);
        self.touched.retain(|touched| usize::from(*touched) != place);
        let later = |queue: &&mut u16| usize::from(**queue) > place;
        let places = self.touched.iter_mut().chain(self.attached.iter_mut().map(|port| &mut port.queue));
        places.filter(later).for_each(|queue| *queue -= 1);
        queue
    }

    /// Tells the port at `place` that its interface has changed, and updates its capabilities.
    pub(crate) fn changed(&mut self, place: usize, link: LinkState) {
        let port = &mut self.attached[place];
        let queue = &mut *self.queues[usize::from(port.queue)].queue;
        if port.is_carried {
            let capabilities = queue.carrier().and_then(|carrier| carrier.port_changed(port.id.port, link));
            port.capabilities = capabilities.unwrap_or(port.capabilities);
        } else {
            queue.changed(link);
            port.capabilities = queue.capabilities();
        }
    }

    /// Sends a frame through the port at `place`, at the end of the turn or when the queue's burst is full.
    #[inline]
    pub(crate) fn send(&mut self, place: usize, frame: Frame, pool: &mut Pool, taps: &mut Taps) {
        let Self { queues, attached, touched, .. } = self;
        let port = &attached[place];
        let queue = touch(queues, touched, port.queue);
        queue.enqueue(frame, port, pool, taps);
    }

    /// As [`Self::send`], for frames that other ports received.
    #[inline]
    pub(crate) fn forward<F>(&mut self, place: usize, frames: F, pool: &mut Pool, taps: &mut Taps)
    where
        F: IntoIterator<Item = Frame>,
    {
        let Self { queues, attached, touched, .. } = self;
        let port = &attached[place];
        let queue = touch(queues, touched, port.queue);
        for frame in frames {
            let enqueue = |frame, pool: &mut Pool| queue.enqueue(frame, port, pool, taps);
            fit(frame, &port.capabilities, &port.counters, pool, enqueue);
        }
    }

    /// Sends a super-frame of two parts through the port at `place`, behind all that waits to leave there, from where its bytes
    /// lie; not so if the port takes it only as a frame, or captures want one.
    pub(crate) fn send_parts(
        &mut self,
        place: usize,
        meta: &Meta,
        parts: [&[u8]; 2],
        pool: &mut Pool,
        taps: &mut Taps,
    ) -> SentParts {
        let port = &self.attached[place];
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if port.is_carried || !port.capabilities.takes_parts(meta, len) || !taps.is_empty() {
            return SentParts::NotSo;
        }
        let queue = touch(&mut self.queues, &mut self.touched, port.queue);
        if !queue.outbox.is_empty() {
            queue.transmit(pool, taps);
        }
        queue.queue.send_parts(pool, meta, parts)
    }

    /// As [`Self::forward`], for frames of at most `longest` bytes that need no work
    /// ([`twinpath_port::fit::is_plain`]) and have no tag beside them: a port sends them as they are.
    #[inline]
    pub(crate) fn forward_plain(
        &mut self,
        place: usize,
        frames: &mut Burst,
        longest: usize,
        pool: &mut Pool,
        taps: &mut Taps,
    ) {
        let port = &self.attached[place];
        if port.is_carried || longest > port.capabilities.frame_len_max as usize {
            return self.forward(place, frames.drain(usize::MAX), pool, taps);
        }
        let queue = touch(&mut self.queues, &mut self.touched, port.queue);
        while !frames.is_empty() {
            if queue.outbox.room() == 0 {
                queue.transmit(pool, taps);
            }
            queue.outbox.append(frames);
        }
    }

    /// Sends the waiting frames. It costs something only for queues that have some, or have not finished sending.
    /// Returns whether there were any.
    pub(crate) fn flush(&mut self, pool: &mut Pool, taps: &mut Taps) -> bool {
        let (mut sent, mut at) = (false, 0);
        while let Some(place) = self.touched.get(at) {
            let queue = &mut self.queues[usize::from(*place)];
            if !queue.outbox.is_empty() {
                sent = true;
                queue.transmit(pool, taps);
            }
            queue.queue.flush(pool);
            if queue.queue.is_flushed() {
                queue.is_touched = false;
                self.touched.swap_remove(at);
            } else {
                at += 1;
            }
        }
        sent
    }

    /// Rebuilds the index of the attached ports.
    fn index(&mut self) {
        self.by_number.fill(0);
        self.queues.iter_mut().for_each(|queue| queue.here = Here::NOWHERE);
        for (place, port) in self.attached.iter().enumerate().rev() {
            if let Some(entry) = self.by_number.get_mut(usize::from(port.id.port)) {
                *entry = place as u16 + 1;
            }
            if !port.is_carried {
                self.queues[usize::from(port.queue)].here = Here { port: port.id, place: place as u32 };
            }
        }
    }

    pub(crate) fn into_queues(self) -> impl Iterator<Item = Box<dyn PortQueue>> {
        self.queues.into_iter().map(|queue| queue.queue)
    }
}

/// The queue at `place`, marked to be flushed.
#[inline]
fn touch<'a>(queues: &'a mut [Queue], touched: &mut Vec<u16>, place: u16) -> &'a mut Queue {
    let queue = &mut queues[usize::from(place)];
    if !queue.is_touched {
        queue.is_touched = true;
        touched.push(place);
    }
    queue
}
