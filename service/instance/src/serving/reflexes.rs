//! Reflexes of an instance: which ones its services allow, the memory for kept replies, and counts over all
//! attachments.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinpath_attach::{Attachment, Replies};
use twinpath_claims::{Answers, REFLEX_CLAIMS_MAX};
use twinpath_config::values::{PathAsked, ReflexAsked};
use twinpath_observe::report::{Count, KeptReplies, Reflexes as Report, ServiceKept};
use twinpath_reflex::kept_table::SERVICES_MAX;
use twinpath_serve::Prototype;
use twinpath_service::{Reflex, TooManyBindings};
use twinpath_time::Instant;

use crate::plan::{Allowed, FormerReflexes, Plan, ServicePlan, ServiceReflex};
use crate::serving::kept::KeptStore;

/// The number of valid kept replies, by the service's number.
pub struct KeptEntries([u32; SERVICES_MAX]);

/// Which requests the kernel's programs may answer for an instance, and how many they have answered.
#[derive(Default)]
pub struct ServedReflexes {
    kept: Option<KeptStore>,
    /// Replies of programs that were attached before, by the number of the claim.
    replies: BTreeMap<u8, u64>,
    /// Requests that those programs did not reply to, by reason.
    not_replied: BTreeMap<&'static str, u64>,
}

impl ServedReflexes {
    /// For the first plan of an instance; see [`Self::allow`].
    #[must_use]
    pub fn of(plan: Plan, services: &[Box<dyn Prototype>]) -> (Self, Plan) {
        let mut new = Self::default();
        let plan = new.allow(plan, services, &FormerReflexes::default());
        (new, plan)
    }

    /// The plan, in which the programs answer for its services. `former` has the service numbers of the former
    /// plan, if there is one. The memory for kept replies is made once a service keeps some, if programs
    /// may read it.
    #[must_use]
    pub fn allow(
        &mut self,
        mut plan: Plan,
        services: &[Box<dyn Prototype>],
        former: &FormerReflexes,
    ) -> Plan {
        let keeps = |service: &dyn Prototype| matches!(service.reflex(), Reflex::Kept(_));
        let none = match services.iter().any(|service| keeps(&**service)) {
            true => self.provide(&plan),
            false => String::new(),
        };
        for (at, (service, planned)) in services.iter().zip(&mut plan.services).enumerate() {
            if keeps(&**service) {
                planned.no_reflex = if self.kept.is_none() {
                    none.clone()
                } else if self.may_keep(at, former) {
                    String::new()
                } else {
                    "it began without memory for kept replies: start the instance again".to_owned()
                };
            }
        }
        let allowed = services.iter().enumerate().map(|(at, service)| {
            let answers = match service.reflex() {
                Reflex::Never => None,
                Reflex::Mirror => Some(Answers::Mirrored),
                Reflex::Kept(_) => self.may_keep(at, former).then_some(Answers::Kept),
            }?;
            Some(Allowed { answers, may_loop: service.may_loop() })
        });
        plan.with_reflexes(allowed, former)
    }

    /// Makes the memory for kept replies if programs of this plan may read it. Returns why there is none,
    /// if each service should report that: not if there are no reflexes at all.
    fn provide(&mut self, plan: &Plan) -> String {
        let may_read = plan.path != PathAsked::Kernel
            && plan.reflexes_per_second().is_some()
            && !plan.fail_open.is_zero();
        if self.kept.is_some() || !may_read {
            return String::new();
        }
        if plan.kept_replies == 0 {
            return "no replies are kept (limits.kept_replies)".to_owned();
        }
        match KeptStore::create(plan.kept_replies) {
            Ok(store) => self.kept = Some(store),
            Err(error) => {
                tracing::warn!("workers give all replies that services keep: {error}");
                return format!("there is no memory for the replies that it keeps: {error}");
            }
        }
        String::new()
    }

    /// Whether the programs can read the replies that a service keeps. A service that continues has the
    /// keepers that it began with.
    fn may_keep(&self, at: usize, former: &FormerReflexes) -> bool {
        let Some(store) = &self.kept else { return false };
        !former.goes_on(at) || former.number(at).is_some_and(|number| store.part(number).is_some())
    }

    /// The plan once its services are made: without kept replies for services that could not get their part of
    /// the memory.
    #[must_use]
    pub fn settle(&self, mut plan: Plan) -> Plan {
        let has_part = |number| self.kept.as_ref().is_some_and(|store| store.part(number).is_some());
        for service in &mut plan.services {
            let keeps = |reflex: &ServiceReflex| reflex.answers == Answers::Kept;
            if service.reflex.take_if(|reflex| keeps(reflex) && !has_part(reflex.number)).is_some() {
                service.no_reflex = TooManyBindings.to_string();
            }
        }
        plan
    }

    /// The memory for kept replies.
    #[must_use]
    pub const fn kept(&self) -> Option<&KeptStore> {
        self.kept.as_ref()
    }

    /// The replies that programs may give by themselves, for an attachment.
    #[must_use]
    pub fn replies(&self, plan: &Plan) -> Option<Replies> {
        let kept = self.kept.as_ref().map(|store| Arc::clone(store.maps()));
        let tries_worker = plan.reflex == ReflexAsked::Auto;
        plan.reflexes_per_second().map(|rate| Replies { rate, tries_worker, kept })
    }

    /// Whether an attachment's programs were loaded when no service kept replies, while a service of the
    /// present plan does.
    #[must_use]
    pub fn need_other_programs(&self, plan: &Plan, attachment: Option<&Attachment>) -> bool {
        let keeps = |service: &ServicePlan| service.reflex.is_some_and(|it| it.answers == Answers::Kept);
        let is_older = |attachment: &Attachment| attachment.reflexes().is_some() && !attachment.knows_kept();
        plan.services.iter().any(keeps) && attachment.is_some_and(is_older)
    }

    /// Adds the counts of the programs of an attachment that is about to end.
    pub fn add(&mut self, attachment: Option<&Attachment>) {
        let Some(programs) = attachment.and_then(Attachment::reflexes) else { return };
        for place in programs.places() {
            let count = programs.count(place).map_or(0, |count| count.replies);
            *self.replies.entry(place).or_default() += count;
        }
        for (why, count) in programs.not_replied().unwrap_or_default() {
            *self.not_replied.entry(why.name()).or_default() += count;
        }
    }

    /// Forgets services that have ended at a reload: others will get their numbers.
    pub fn forget(&mut self, former: &FormerReflexes) {
        self.replies.retain(|place, _| former.continues((usize::from(*place) / REFLEX_CLAIMS_MAX) as u8));
        let store = self.kept.as_ref();
        former.ended().for_each(|number| store.into_iter().for_each(|store| store.end(number)));
    }

    /// A plan for which [`Self::allow`] was called is not applied: the memory is dropped if there was none
    /// before.
    pub fn refuse(&mut self, had_store: bool) {
        self.kept.take_if(|_| !had_store);
    }

    /// Replies of the present and former programs for a service.
    #[must_use]
    pub fn of_service(&self, attachment: Option<&Attachment>, plan: &ServicePlan) -> u64 {
        (0..plan.served().entries()).map(|entry| self.of_claim(attachment, plan, entry)).sum()
    }

    /// Those replies for one entry of what the service serves.
    #[must_use]
    pub fn of_claim(&self, attachment: Option<&Attachment>, plan: &ServicePlan, entry: usize) -> u64 {
        let Some(reflex) = plan.reflex_of(entry) else { return 0 };
        let programs = attachment.and_then(Attachment::reflexes);
        let now = programs.and_then(|programs| programs.count(reflex.place).ok());
        let before = self.replies.get(&reflex.place).copied();
        now.map_or(0, |count| count.replies) + before.unwrap_or_default()
    }

    /// The report of an attached interface.
    #[must_use]
    pub fn report(&self, entries: &KeptEntries, attachment: &Attachment) -> Report {
        let mut counts = self.not_replied.clone();
        let counted =
            attachment.reflexes().and_then(|programs| programs.not_replied().ok()).unwrap_or_default();
        counted.into_iter().for_each(|(why, count)| *counts.entry(why.name()).or_default() += count);
        Report {
            off: attachment.no_reflex().unwrap_or_default().to_owned(),
            not_replied: named(counts.into_iter()),
            kept: self.kept.as_ref().map(|store| KeptReplies {
                off: attachment.no_kept().unwrap_or_default().to_owned(),
                entries: entries.0.iter().map(|count| u64::from(*count)).sum(),
                entries_max: store.capacity() as u64,
                evictions: store.evictions(),
                memory_bytes: store.maps().bytes(),
            }),
        }
    }

    /// The number of valid entries in the memory for kept replies. It reads a word of each entry, so a
    /// report asks once.
    #[must_use]
    pub fn entries(&self, now: Instant) -> KeptEntries {
        KeptEntries(self.kept.as_ref().map_or([0; SERVICES_MAX], |store| store.entries(now)))
    }

    /// The kept replies of a service.
    #[must_use]
    pub fn report_kept(&self, entries: &KeptEntries, plan: &ServicePlan) -> Option<ServiceKept> {
        let reflex = plan.reflex.filter(|reflex| reflex.answers == Answers::Kept)?;
        let store = self.kept.as_ref()?;
        let not_kept = store.part(reflex.number)?.not_kept().collect::<Vec<_>>();
        Some(ServiceKept {
            entries: entries.0[usize::from(reflex.number)].into(),
            not_kept: named(not_kept.into_iter().map(|(why, count)| (why.name(), count))),
        })
    }
}

/// The counts that are not 0.
fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> Vec<Count> {
    let counts = counts.filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| Count { name: name.to_owned(), count }).collect()
}

#[cfg(test)]
mod tests;
