use std::net::SocketAddr;
use std::path::Path as FilePath;

use twinpath_config::{Config, Origin};
use twinpath_inspect::Reason;
use twinpath_service::{Answer, Datagram, KeptReplies as Replies, Service, Shape};
use twinpath_test_rig::root_or_skip;

use super::*;

/// A service that allows the reflex it is made with, and answers nothing.
#[derive(Clone)]
struct Allows(Reflex);

impl Service for Allows {
    type Connection = ();

    fn datagram(&mut self, _: &mut Datagram<'_>) -> Answer {
        Answer::Nothing
    }

    /// These services can tell requests from replies if they keep replies.
    fn may_loop(&self) -> bool {
        !matches!(self.0, Reflex::Kept(_))
    }

    fn reflex(&self) -> Reflex {
        self.0.clone()
    }

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }
}

fn keeps() -> Box<dyn Prototype> {
    Box::new(Allows(Reflex::Kept(Replies::new(&[Shape::EXACT]))))
}

/// A plan of services, with these lines of the table `interface` and of other tables.
fn plan(services: usize, lines: &str) -> Plan {
    let ports = (0..services)
        .map(|at| format!("[[service]]\nname = \"s{at}\"\nkind = \"echo\"\nudp = {}\n", 7000 + at));
    let text = format!("{}[interface]\nname = \"lo\"\n{lines}\n", ports.collect::<String>());
    let config =
        Config::parse(&text, FilePath::new("twinpath.toml")).unwrap_or_else(|error| panic!("{error:?}"));
    Plan::of(&config).expect("it names an interface")
}

fn answers(plan: &Plan) -> Vec<Option<Answers>> {
    plan.services.iter().map(|service| service.reflex.map(|reflex| reflex.answers)).collect()
}

/// Binds the kept replies of a plan's services, as their start does.
fn bind(reflexes: &ServedReflexes, plan: &Plan, services: &[Box<dyn Prototype>]) {
    for (plan, service) in plan.services.iter().zip(services) {
        if let (Some(reflex), Reflex::Kept(replies)) = (plan.reflex, service.reflex()) {
            let _ = reflexes.kept().expect("memory").bind(reflex.number, &replies);
        }
    }
}

#[test]
fn memory_is_made_only_where_programs_may_read_it() {
    if !root_or_skip() {
        return;
    }
    let makes = |service: Box<dyn Prototype>, lines: &str| {
        let (reflexes, plan) = ServedReflexes::of(plan(1, lines), &[service]);
        assert_eq!(
            reflexes.kept().is_some(),
            plan.services[0].reflex.is_some_and(|it| it.answers == Answers::Kept)
        );
        assert_eq!(plan.services[0].no_reflex, "", "the interface says it once for all services");
        reflexes.kept().is_some()
    };
    for lines in ["", "path = \"packet\"", "path = \"xdp\""] {
        assert!(makes(keeps(), lines), "{lines}");
    }
    for lines in ["path = \"kernel\"", "reflex = \"off\"", "[worker]\nfail_open_ms = 0"] {
        assert!(!makes(keeps(), lines), "{lines}");
    }
    assert!(!makes(Box::new(Allows(Reflex::Mirror)), ""));
    assert!(!makes(Box::new(Allows(Reflex::Never)), ""));
}

#[test]
fn a_service_without_memory_says_so_and_its_claims_say_nothing_of_kept_replies() {
    let plan = plan(2, "[limits]\nkept_replies = 0");
    let (_, plan) = ServedReflexes::of(plan, &[keeps(), Box::new(Allows(Reflex::Mirror))]);
    assert_eq!(answers(&plan), [None, Some(Answers::Mirrored)]);
    assert!(plan.services[0].no_reflex.contains("limits.kept_replies"), "{}", plan.services[0].no_reflex);
    assert_eq!(plan.services[1].no_reflex, "");
}

#[test]
fn a_source_has_a_limit_only_where_replies_could_be_answered() {
    if !root_or_skip() {
        return;
    }
    let plan = plan(2, "[limits]\nreply_rate = 7");
    let (_, plan) = ServedReflexes::of(plan, &[keeps(), Box::new(Allows(Reflex::Mirror))]);
    let rates = plan.services.iter().map(|service| service.reflex_of(0).map(|reflex| reflex.source_rate));
    assert_eq!(rates.collect::<Vec<_>>(), [Some(0), Some(7)]);
}

#[test]
fn the_services_beyond_the_last_number_say_so() {
    let services: Vec<Box<dyn Prototype>> =
        (0..=SERVICES_MAX).map(|_| Box::new(Allows(Reflex::Mirror)) as Box<dyn Prototype>).collect();
    let (_, plan) = ServedReflexes::of(plan(services.len(), ""), &services);
    let (last, others) = plan.services.split_last().expect("some");
    assert!(others.iter().all(|service| service.reflex.is_some() && service.no_reflex.is_empty()));
    assert!(last.reflex.is_none() && last.no_reflex.contains("16"), "{}", last.no_reflex);
}

#[test]
fn a_service_that_began_without_memory_has_none_after_a_reload_that_makes_some() {
    if !root_or_skip() {
        return;
    }
    let services = [keeps(), keeps()];
    let before = plan(1, "[limits]\nkept_replies = 0");
    let (mut reflexes, before) = ServedReflexes::of(before, &services[..1]);
    let former = before.former_reflexes(&[Origin::Kept(0, Vec::new()), Origin::New]);
    let after = reflexes.allow(plan(2, ""), &services, &former);
    assert_eq!(answers(&after), [None, Some(Answers::Kept)], "the first one has no keepers");
    assert!(after.services[0].no_reflex.contains("start the instance again"));
    bind(&reflexes, &after, &services);
    let after = reflexes.settle(after);
    assert_eq!(answers(&after), [None, Some(Answers::Kept)]);
    // A service keeps the keepers that it began with.
    let former = after.former_reflexes(&[Origin::Kept(0, Vec::new()), Origin::Kept(1, Vec::new())]);
    let later = reflexes.allow(plan(2, ""), &services, &former);
    assert_eq!(answers(&later), [None, Some(Answers::Kept)]);
    assert_eq!(later.services[1].reflex, after.services[1].reflex);
}

#[test]
fn a_service_whose_replies_are_used_in_too_many_instances_says_so() {
    if !root_or_skip() {
        return;
    }
    let services = [keeps()];
    let mut used = Vec::new();
    let (reflexes, plan) = ServedReflexes::of(plan(1, ""), &services);
    let Reflex::Kept(replies) = services[0].reflex() else { panic!("it keeps") };
    for _ in 0..twinpath_service::BINDINGS_MAX {
        let words: std::sync::Arc<dyn twinpath_reflex::Generations> =
            std::sync::Arc::new(twinpath_reflex::generations());
        replies.bind(&words).expect("room");
        used.push(words);
    }
    bind(&reflexes, &plan, &services);
    let plan = reflexes.settle(plan);
    assert_eq!(answers(&plan), [None]);
    assert!(plan.services[0].no_reflex.contains("instances"), "{}", plan.services[0].no_reflex);
}
