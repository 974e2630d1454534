use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    nfs: NfsArgs,
}

fn plan(line: &str) -> Result<BenchPlan, String> {
    let words = std::iter::once("nfs").chain(line.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    super::plan(&line.nfs).map_err(|error| format!("{error:#}"))
}

#[test]
fn a_server_is_asked_over_tcp_at_its_usual_port() {
    let plan = plan("127.0.0.1 --export /srv").unwrap();
    assert_eq!(plan.target.address, "127.0.0.1:2049".parse().unwrap());
    assert_eq!((plan.transport, plan.load.inflight), (Transport::Tcp, 1));
    assert_eq!(plan.service.to_string(), "nfs read");
    assert_eq!(super::tests::plan("::1 --export /srv --udp").unwrap().transport, Transport::Udp);
}

#[test]
fn what_makes_no_sense_gets_one_sentence() {
    for (line, words) in [
        ("127.0.0.1", "--export"),
        ("127.0.0.1 --export /x --proc truncate", "read, write, getattr, lookup, list"),
        ("127.0.0.1 --export /x --proc lookup --size 512", "--size is for what moves data"),
        ("127.0.0.1 --export /x --proc write --file a", "is not written over"),
        ("127.0.0.1 --export /x --size 8", "choose 16 to 1048576"),
        ("127.0.0.1 --export /x --udp --size 65507", "choose 16 to 64483"),
        ("127.0.0.1 --export /x --writes-per-commit 4", "is for --proc write"),
        ("127.0.0.1 --export /x --proc write --writes-per-commit 0", "at least 1"),
        ("127.0.0.1 --export /x --proc list --inflight 2", "-i N repeats it"),
        ("127.0.0.1 --export /x --proc list --duration 1", "-i N repeats it"),
        ("127.0.0.1 --export /x --on lo", "fit a frame"),
        ("127.0.0.1:1 --export /x -p 2", "two ports"),
    ] {
        let error = plan(line).expect_err(line);
        assert!(error.contains(words), "{line}: {error:?} lacks {words:?}");
    }
}
