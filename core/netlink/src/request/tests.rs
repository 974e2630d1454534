use std::thread;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};

use super::*;

/// A pair of sockets: one asks, and the other one plays the kernel.
fn pair(patience: Duration) -> (Netlink, OwnedFd) {
    let (ours, kernel) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (Netlink::over(ours, patience), kernel)
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let header = header((HEADER_LEN + body.len()) as u32, kind, flags, sequence);
    let mut message = [&header[..], body].concat();
    message.resize(message.len().next_multiple_of(ALIGN), 0);
    message
}

/// The datagrams that answer a request of that sequence number.
type Answer = Box<dyn Fn(u32) -> Vec<Vec<u8>> + Send>;

/// Answers each request; the number of requests is that of `answers`.
fn ask(request: &Request<'_>, patience: Duration, answers: Vec<Answer>) -> Result<Answers, NetlinkError> {
    let (netlink, kernel) = pair(patience);
    let plays = thread::spawn(move || {
        let mut asked = [0; 256];
        for answer in answers {
            let (len, _) = recv(&kernel, &mut asked[..], RecvFlags::empty()).unwrap();
            let sequence = Messages::of(&asked[..len]).next().unwrap().sequence;
            answer(sequence).iter().for_each(|datagram| {
                send(&kernel, datagram, SendFlags::empty()).unwrap();
            });
        }
        kernel
    });
    let answers = netlink.request(request);
    drop(plays.join().unwrap());
    answers
}

const LONG: Duration = Duration::from_secs(60);
const ROW: u16 = 16;

fn done(sequence: u32, flags: u16) -> Vec<u8> {
    message(NLMSG_DONE, flags, sequence, &[0; 4])
}

fn values(answers: &Answers) -> Vec<u8> {
    answers.iter().map(|message| message.body[0]).collect()
}

#[test]
fn an_answer_to_an_earlier_request_is_no_answer_to_this_one() {
    let body = Body::new([]);
    let request = Request::new("name the link", 18, &body);
    let answer = |sequence: u32| {
        vec![
            message(NLMSG_ERROR, 0, sequence.wrapping_sub(1), &(-1_i32).to_ne_bytes()),
            message(ROW, 0, sequence.wrapping_sub(1), &[1; 4]),
            [message(ROW, 0, sequence, &[2; 5]), message(NLMSG_ERROR, 0, sequence, &[0; 4])].concat(),
        ]
    };
    let answers = ask(&request, LONG, vec![Box::new(answer)]).unwrap();
    assert_eq!(values(&answers), [2]);
    assert_eq!(answers.iter().next().unwrap().body.len(), 5);
}

#[test]
fn a_list_that_changed_meanwhile_is_asked_for_again_and_not_for_ever() {
    let body = Body::new([]);
    let request = Request::list("list the links", 18, &body);
    let list = |value: u8, flags: u16| -> Answer {
        Box::new(move |sequence| vec![message(ROW, flags, sequence, &[value; 4]), done(sequence, 0)])
    };
    let answers = ask(&request, LONG, vec![list(1, NLM_F_DUMP_INTR), list(2, 0)]).unwrap();
    assert_eq!(values(&answers), [2]);
    let changing = (1..=5).map(|value| list(value, NLM_F_DUMP_INTR)).collect();
    assert_eq!(values(&ask(&request, LONG, changing).unwrap()), [5]);
}

#[test]
fn a_refusal_says_what_was_asked_and_why() {
    let body = Body::new([]);
    let request = Request::new("set the MTU of interface 7", 16, &body);
    let text = Body::new([]).text(NLMSGERR_ATTR_MSG, "mtu greater than device maximum");
    for capped in [true, false] {
        let text = text.clone();
        let answer = move |sequence: u32| {
            // The whole request follows the code unless it is left out.
            let asked = if capped { 20_u32 } else { 18 };
            let header = header(asked, 16, 0, sequence);
            let rest: &[u8] = if capped { &[] } else { &[0; 4] };
            let body = [&(-22_i32).to_ne_bytes()[..], &header, rest, text.as_slice()].concat();
            let flags = NLM_F_ACK_TLVS | if capped { NLM_F_CAPPED } else { 0 };
            vec![message(NLMSG_ERROR, flags, sequence, &body)]
        };
        let error = ask(&request, LONG, vec![Box::new(answer)]).unwrap_err();
        assert!(error.is(Errno::INVAL));
        assert_eq!(
            error.to_string(),
            "the kernel did not set the MTU of interface 7: Invalid argument (os error 22): mtu greater than device maximum"
        );
    }
}

#[test]
fn a_kernel_that_does_not_answer_is_waited_for_until_the_deadline() {
    let body = Body::new([]);
    let request = Request::new("list the links", 18, &body);
    let patience = Duration::from_millis(20);
    // An answer without an end, too.
    let endless = |sequence| vec![message(ROW, 0, sequence, &[1; 4])];
    let error = ask(&request, patience, vec![Box::new(endless)]).unwrap_err();
    assert!(matches!(error.failure(), Failure::Silent { .. }), "{error}");
    assert_eq!(error.to_string(), "the kernel did not answer within 0.02 s when it was to list the links");
}

#[test]
fn an_answer_without_a_bound_is_cut_and_the_socket_is_of_use_afterwards() {
    let (netlink, kernel) = pair(LONG);
    let body = Body::new([]);
    let request = Request::list("list the links", 18, &body);
    let plays = thread::spawn(move || {
        let mut asked = [0; 256];
        for datagrams in [ANSWER_MAX / (64 * 1024) + 1, 1] {
            let (len, _) = recv(&kernel, &mut asked[..], RecvFlags::empty()).unwrap();
            let sequence = Messages::of(&asked[..len]).next().unwrap().sequence;
            let row = message(ROW, 0, sequence, &[1; 64 * 1024]);
            (0..datagrams).for_each(|_| {
                send(&kernel, &row, SendFlags::empty()).unwrap();
            });
            send(&kernel, &done(sequence, 0), SendFlags::empty()).unwrap();
        }
    });
    let error = netlink.request(&request).unwrap_err();
    assert!(matches!(error.failure(), Failure::TooLong { .. }), "{error}");
    assert_eq!(netlink.request(&request).unwrap().iter().count(), 1);
    plays.join().unwrap();
}

#[test]
fn the_kernel_says_in_words_why_it_refuses() {
    let netlink = Netlink::open(Protocol::Route).unwrap();
    // RTM_NEWLINK of a kind that is not there: `struct ifinfomsg`, IFLA_LINKINFO with IFLA_INFO_KIND.
    let kind = Body::new([]).text(1, "twinpath-none");
    let body = Body::new([0; 16]).nested(18, &kind);
    let error = netlink.request(&Request::create("make a link", 16, &body)).unwrap_err();
    // Without privileges it is refused before that.
    match error.failure() {
        Failure::Refused { text: Some(text), .. } => assert_eq!(text, "Unknown device type"),
        Failure::Refused { error, .. } => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
        other => panic!("{other}"),
    }
}

#[test]
fn a_list_is_read_whole_by_a_socket_of_either_kind() {
    for netlink in [Netlink::open(Protocol::Route).unwrap(), Netlink::open(Protocol::Route).unwrap().strict()]
    {
        // RTM_GETLINK; the loopback device is always there.
        let body = Body::new([0; 16]);
        let answers = netlink.request(&Request::list("list the links", 18, &body)).unwrap();
        let names = answers.iter().filter_map(|message| message.parts::<16>()?.1.text(3));
        assert!(names.into_iter().any(|name| name == "lo"));
    }
}

#[test]
fn what_is_no_error_number_is_an_error_all_the_same() {
    let body = Body::new([]);
    let request = Request::new("set the MTU of interface 7", 19, &body);
    for code in [5_i32, -5000, i32::MIN, i32::MAX] {
        let answer = move |sequence| vec![message(NLMSG_ERROR, 0, sequence, &code.to_ne_bytes())];
        let error = ask(&request, LONG, vec![Box::new(answer)]).unwrap_err();
        assert!(error.is(Errno::IO), "{code}: {error}");
    }
}

#[test]
fn a_list_that_was_given_up_is_read_to_its_end_before_the_next_request() {
    let body = Body::new([]);
    let request = Request::list("list the links", 18, &body);
    let (netlink, kernel) = pair(Duration::from_millis(20));
    send(&kernel, &message(ROW, 0, 1, &[1; 4]), SendFlags::empty()).unwrap();
    assert!(matches!(netlink.request(&request).unwrap_err().failure(), Failure::Silent { .. }));
    // The kernel refuses a second list until the first one has ended, so the end of the first comes first.
    for datagram in [message(ROW, 0, 1, &[2; 4]), done(1, 0), message(ROW, 0, 2, &[3; 4]), done(2, 0)] {
        send(&kernel, &datagram, SendFlags::empty()).unwrap();
    }
    assert_eq!(values(&netlink.request(&request).unwrap()), [3]);
    let turn = netlink.turn.lock().unwrap();
    assert_eq!(turn.given_up, None);
}
