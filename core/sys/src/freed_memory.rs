//! What the allocator does with freed memory: for programs that allocate and free long buffers all the time, on several
//! threads.
#![allow(unsafe_code, reason = "mallopt has no safe wrapper")]

/// The longest block that is not given back to the kernel at once, bytes: the greatest value that glibc takes.
#[cfg(target_env = "gnu")]
const BLOCK_MAX: libc::c_int = 32 << 20;

/// Has the allocator keep up to `bytes` of freed memory at the end of each heap, and not give long blocks back to the
/// kernel: otherwise a long buffer that another thread frees is made of new pages each time (mallopt(3)). Returns whether
/// it will; an allocator other than that of glibc has ways of its own.
pub fn keep(bytes: u32) -> bool {
    #[cfg(target_env = "gnu")]
    {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: it changes two settings of the allocator, under the allocator's own lock, and has no other conditions.
        unsafe {
            libc::mallopt(libc::M_TRIM_THRESHOLD, bytes) == 1
                && libc::mallopt(libc::M_MMAP_THRESHOLD, BLOCK_MAX) == 1
        }
    }
    #[cfg(not(target_env = "gnu"))]
    {
        let _ = bytes;
        false
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// Page faults of this thread so far that took no disk: the 10th field of its stat (proc(5)).
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("there");
        let (_, behind_name) = stat.rsplit_once(')').expect("a name");
        behind_name.split_whitespace().nth(7).and_then(|field| field.parse().ok()).expect("a number")
    }

    #[test]
    fn long_buffers_that_another_thread_frees_are_made_of_the_same_memory() {
        const LEN: usize = 1 << 20;
        const PAGES: u64 = (LEN / 4096) as u64;
        const ROUNDS: u64 = 32;
        assert!(keep(64 << 20));
        let (give, taken) = sync_channel::<Vec<Vec<u8>>>(0);
        let (done, is_done) = sync_channel(0);
        let frees = std::thread::spawn(move || {
            while let Ok(buffers) = taken.recv() {
                drop(buffers);
                done.send(()).expect("it is waited for");
            }
        });
        let round = || {
            give.send((0..4).map(|_| vec![1; LEN]).collect()).expect("it frees them");
            is_done.recv().expect("freed");
        };
        (0..4).for_each(|_| round());
        let before = faults();
        (0..ROUNDS).for_each(|_| round());
        let per_round = (faults() - before) / ROUNDS;
        assert!(per_round < PAGES, "{per_round} of the {} pages of a round are new", 4 * PAGES);
        drop(give);
        frees.join().expect("it ends");
    }
}
