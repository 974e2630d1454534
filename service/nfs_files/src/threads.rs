//! Files for threads that may wait: each gets its own the first time that it needs them.

use std::cell::RefCell;
use std::sync::Arc;

use twinpath_nfs::ThreadFiles;
use twinpath_rpc::Refusal;
use twinpath_sys::clock;
use twinpath_sys::file_rights::own_mask;
use twinpath_time::Instant;

use super::{HostExports, HostFiles, QuickFiles};

thread_local! {
    static FILES: RefCell<Option<HostFiles>> = const { RefCell::new(None) };
}

/// The files of exports, for the thread that asks.
#[derive(Clone)]
pub struct HostThreads(Arc<HostExports>);

impl HostThreads {
    /// The files of these exports.
    #[must_use]
    pub const fn new(exports: Arc<HostExports>) -> Self {
        Self(exports)
    }
}

impl ThreadFiles for HostThreads {
    type Files = HostFiles;
    type Quick = QuickFiles;

    fn now() -> Instant {
        clock::now()
    }

    fn quick(&self) -> Option<QuickFiles> {
        QuickFiles::new(&self.0)
    }

    fn with<R>(&self, work: impl FnOnce(&mut HostFiles) -> R) -> Result<R, Refusal> {
        FILES.with_borrow_mut(|files| {
            if files.is_none() {
                own_mask().map_err(|_| Refusal::SystemError)?;
            }
            let is_other = |files: &HostFiles| !Arc::ptr_eq(&files.exports, &self.0);
            if files.as_ref().is_none_or(is_other) {
                *files = None;
            }
            Ok(work(files.get_or_insert_with(|| HostFiles::new(Arc::clone(&self.0)))))
        })
    }
}
