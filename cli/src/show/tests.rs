use std::os::unix::net::UnixListener;

use super::*;

#[test]
fn without_an_instance_one_sentence_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let error = the_only_one(&[directory.path().to_owned()]).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "no instance is running here (looked in {}): start one with `twinpath serve echo --on IFACE --udp 7`, or \
             name its socket with --socket",
            directory.path().display()
        )
    );
}

#[test]
fn the_only_instance_is_asked_and_of_several_one_has_to_be_named() {
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| directory.path().join(name);
    let _one = UnixListener::bind(socket("echo-veth0-1.sock")).unwrap();
    drop(UnixListener::bind(socket("echo-veth0-2.sock")).unwrap());
    assert_eq!(the_only_one(&[directory.path().to_owned()]).unwrap(), socket("echo-veth0-1.sock"));
    let _other = UnixListener::bind(socket("echo-eth0-3.sock")).unwrap();
    let error = the_only_one(&[directory.path().to_owned()]).unwrap_err().to_string();
    let list = [socket("echo-eth0-3.sock"), socket("echo-veth0-1.sock")]
        .map(|path| format!("\n  {}", path.display()));
    assert_eq!(error, format!("2 instances are running: name one with --socket{}", list.concat()));
}

#[test]
fn a_service_says_why_the_programs_answer_nothing_for_it() {
    let why = "there is no memory for the replies that it keeps: ENOMEM".to_owned();
    let service =
        twinpath_observe::report::Service { name: "rpc".to_owned(), no_reflex: why, ..Default::default() };
    let report = Report { services: vec![service], ..Report::default() };
    let text = table::render(Topic::Services, &report);
    assert!(
        text.contains("reflexes: none, as there is no memory for the replies that it keeps: ENOMEM"),
        "{text}"
    );
}
