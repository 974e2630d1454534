//! Two rows about living beside the kernel: what a killed instance costs, and datagrams that arrive in pieces.

pub(crate) mod fragments;
pub(crate) mod kill9;

#[cfg(test)]
mod tests {
    use super::super::quick::LAB;
    use super::super::session::{self, Selection, Session};
    use super::super::{process::Launcher, progress::Progress, topology::Topology};
    use super::{fragments, kill9};

    fn session() -> Session {
        let cpus = session::cpus().unwrap();
        let mut launcher = Launcher::new(Topology::build().unwrap(), cpus).unwrap();
        // A test's own binary is not the program.
        let mut exe = std::env::current_exe().unwrap();
        exe.pop();
        exe.pop();
        launcher.set_exe(exe.join("twinpath"));
        Session {
            launcher,
            cpus,
            run_dir: session::run_dir().unwrap(),
            selection: Selection::new(LAB.rows, LAB.ratios, LAB.together, &[]).unwrap(),
            repeat: None,
            check: false,
            progress: Progress::new(),
        }
    }

    #[test]
    fn both_rows_measure() {
        if !twinpath_test_skip::root_or_skip() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let session = session();
            let killed = kill9::measure(&session, "auto", 2).await.unwrap();
            assert!(killed.values["worst_ms"] > 0.0 && killed.values["worst_ms"] < 2_000.0, "{killed:?}");
            let pieces = fragments::measure(&session, "auto", 20, 7).await.unwrap();
            assert_eq!(pieces.values["share"], 1.0, "{pieces:?}");
        });
    }
}
