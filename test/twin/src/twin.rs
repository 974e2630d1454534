//! Both sides, and a script that is run on both, one step at a time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use twinpath_config::Sandbox;
use twinpath_leases::rules::{EXPLAIN_VARIABLE, OWNER_VARIABLE, RULES_VARIABLE, Rule, Rules};
use twinpath_owner::{self as owner, OwnerPlan, ProgramLimits};
use twinpath_worker::idle::Mode;

use crate::compare::{Difference, differences, may_lend};
use crate::frame::{datagram, frames};
use crate::known::{self, FoundAt, Then};
use crate::link::Link;
use crate::order::{self, Look, Order};
use crate::subject::{self, Doing, Subject};

/// Maximum time of a call that does not block.
const PROMPT: Duration = Duration::from_secs(2);
/// Maximum time of a call in which a lease is given: the owner may wait for the kernel.
const LENT: Duration = Duration::from_secs(20);
/// A call of the leased side that has run or slept for this long without an answer counts as one that waits.
const RUNS: Duration = Duration::from_millis(3);
const SLEEPS: Duration = Duration::from_millis(15);

/// The steps of a sequence, and how calls wait.
#[derive(Clone, Debug)]
pub struct Script {
    /// How calls of the leased side wait.
    pub mode: Mode,
    /// One line each.
    pub steps: Vec<String>,
}

/// How a script went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The first unknown difference, at the end of what was run.
    pub difference: Option<Difference>,
    /// A known one has ended the script.
    pub is_ended: bool,
    /// The names of known ones.
    pub known: Vec<&'static str>,
    /// Steps that were run.
    pub steps: usize,
    /// Datagrams of the leased side that came by the ring.
    pub by_ring: u64,
    /// And by the kernel.
    pub by_kernel: u64,
    /// Calls that have returned datagrams of different senders, as these came in another order.
    pub across_senders: u64,
    /// Why sockets stayed with the kernel, or went back there.
    pub reasons: Vec<String>,
}

/// Both sides.
pub struct Twin {
    plain: Link,
    leased: Link,
    folder: TempDir,
    program: PathBuf,
    library: PathBuf,
    /// A lease that stays, so that the kernel's programs do.
    _keeper: Subject,
    /// Known differences with such a text in their names are failures.
    pub struck: Vec<String>,
}

/// One run of a script.
struct Run<'a> {
    twin: &'a mut Twin,
    sides: [Subject; 2],
    mode: Mode,
    outcome: Outcome,
    /// What the last call of each actor that may wait looks at.
    looks: [Option<Look>; subject::ACTORS],
    is_traced: bool,
}

const PLAIN: usize = 0;
const LEASED: usize = 1;

/// Starts the owner of the interface, on a thread that ends with this process.
fn own(link: &Link, listen: &Path) -> Result<()> {
    let many = 1_000_000;
    let limits = ProgramLimits {
        programs: 32,
        programs_per_user: many,
        sockets_per_program: 16,
        sockets_per_user: many,
    };
    let plan = OwnerPlan {
        interface: "in0".to_owned(),
        listen: listen.to_owned(),
        rules: None,
        limits,
        sandbox: Sandbox::Off,
        socket: Some(listen.with_extension("sock")),
        metrics: None,
        passed: None,
        take_over: None,
    };
    let (tell, told) = mpsc::channel();
    // A thread that is started in the namespace stays there.
    let start = move || {
        std::thread::spawn(move || {
            owner::run(plan, |_| {
                let _ = tell.send(());
            })
        })
    };
    let thread = link.host.run(start)?;
    if told.recv_timeout(Duration::from_secs(60)).is_err() {
        bail!("no owner: {:?}", thread.join());
    }
    Ok(())
}

/// The rule of the leased side. Here alone is said how its sockets get their leases.
fn rules(mode: Mode) -> Rules {
    Rules { rules: vec![Rule { mode, interface: Some("in0".to_owned()), at_bind: true, ..Rule::default() }] }
}

impl Twin {
    /// Makes both links, the owner and the program. `library`: what is loaded into the leased side.
    ///
    /// # Errors
    /// Without root, or a compiler.
    pub fn new(library: &Path) -> Result<Self> {
        ensure!(library.is_file(), "{} is missing: build twinpath-preload", library.display());
        let folder = tempfile::tempdir()?;
        // Also for a subject that has given its rights up.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let program = subject::build(folder.path())?;
        let (plain, leased) = (Link::new()?, Link::new()?);
        own(&leased, &folder.path().join("owner"))?;
        let environment = environment(folder.path(), library, Mode::Interrupt, "keeper");
        let mut keeper =
            Subject::start(&program, &leased.host, &folder.path().join("keeper.chan"), &environment)?;
        for line in ["socket s0 AF_INET 0", "bind s0 10.9.0.250 6998", "poll 0 s0:POLLIN"] {
            keeper.tell(0, line);
            let answer = keeper.answer(0, PROMPT)?.context("the keeper says nothing")?;
            ensure!(answer.contains("errno=-"), "{line}: {answer}");
        }
        Ok(Self {
            plain,
            leased,
            folder,
            program,
            library: library.to_owned(),
            _keeper: keeper,
            struck: Vec::new(),
        })
    }

    /// Makes all of it anew, after a script could not be run to its end.
    ///
    /// # Errors
    /// As of [`Self::new`].
    pub fn renew(&mut self) -> Result<()> {
        let struck = std::mem::take(&mut self.struck);
        *self = Self { struck, ..Self::new(&self.library)? };
        Ok(())
    }

    /// Runs a script on both sides, up to the first difference that is not known.
    ///
    /// # Errors
    /// What has nothing to do with what is compared.
    pub fn run(&mut self, script: &Script, is_traced: bool) -> Result<Outcome> {
        let folder = self.folder.path().to_owned();
        let explain = folder.join("explain");
        fs::write(&explain, "")?;
        fs::set_permissions(&explain, Permissions::from_mode(0o666))?;
        let environment = environment(&folder, &self.library, script.mode, "explain");
        let plain = Subject::start(&self.program, &self.plain.host, &folder.join("plain.chan"), &[])?;
        let leased =
            Subject::start(&self.program, &self.leased.host, &folder.join("leased.chan"), &environment)?;
        let mut run = Run {
            twin: self,
            sides: [plain, leased],
            mode: script.mode,
            outcome: Outcome::default(),
            looks: Default::default(),
            is_traced,
        };
        let result = run.steps(&script.steps);
        let Run { sides: [plain, leased], mut outcome, .. } = run;
        let ends = [plain.end()?, leased.end()?];
        if outcome.difference.is_none() && !outcome.is_ended && ends[PLAIN] != ends[LEASED] {
            let [plain, leased] = ends.map(|end| format!("{end:?}"));
            let found =
                Difference { step: script.steps.len(), kind: "exit:status".to_owned(), plain, leased };
            note(&mut outcome, (&explain, &self.struck), &script.steps, script.mode, found)?;
        }
        self.plain.restore()?;
        self.leased.restore()?;
        result?;
        (outcome.by_ring, outcome.by_kernel, outcome.reasons) = read_explain(&explain)?;
        Ok(outcome)
    }
}

/// A difference is one that is known, or the end. Returns whether the script can go on.
fn note(
    outcome: &mut Outcome,
    (explain, struck): (&Path, &[String]),
    steps: &[String],
    mode: Mode,
    difference: Difference,
) -> Result<bool> {
    let (_, _, reasons) = read_explain(explain)?;
    Ok(match known::find(FoundAt { steps, mode, difference: &difference, reasons: &reasons }, struck) {
        Some(entry) => {
            outcome.known.push(entry.name);
            outcome.is_ended |= matches!(entry.then, Then::End);
            !outcome.is_ended
        }
        None => {
            outcome.difference = Some(difference);
            false
        }
    })
}

fn environment(folder: &Path, library: &Path, mode: Mode, explain: &str) -> Vec<(&'static str, String)> {
    let path = |name: &str| folder.join(name).display().to_string();
    vec![
        ("LD_PRELOAD", library.display().to_string()),
        (RULES_VARIABLE, rules(mode).to_line()),
        (OWNER_VARIABLE, path("owner")),
        (EXPLAIN_VARIABLE, path(explain)),
    ]
}

/// How many datagrams came by the ring and by the kernel, and why sockets are the kernel's.
fn read_explain(explain: &Path) -> Result<(u64, u64, Vec<String>)> {
    let (mut by_ring, mut by_kernel, mut reasons) = (0, 0, Vec::new());
    for line in fs::read_to_string(explain)?.lines() {
        if let Some((_, counts)) = line.split_once(": received ") {
            let mut numbers = counts.split(' ').filter_map(|word| word.parse::<u64>().ok());
            by_ring += numbers.next().unwrap_or(0);
            by_kernel += numbers.next().unwrap_or(0);
        } else if let Some((_, why)) = line.split_once(": by the kernel") {
            reasons.push(why.trim_start_matches(':').trim().to_owned());
        }
    }
    Ok((by_ring, by_kernel, reasons))
}

fn actor_of(name: &str) -> Option<usize> {
    name.strip_prefix('a')?.parse().ok().filter(|number| *number < subject::ACTORS)
}

impl Run<'_> {
    fn steps(&mut self, steps: &[String]) -> Result<()> {
        for (at, step) in steps.iter().enumerate() {
            self.outcome.steps += 1;
            let words: Vec<&str> = step.split(' ').collect();
            let pair = match words[0] {
                "#" => {
                    self.trace(step, None);
                    continue;
                }
                "frame" => {
                    let frames = frames(&words[1..])?;
                    let by = usize::from(words.contains(&"via=1"));
                    // First where the ring may be open, for a time.
                    self.twin.leased.send(&frames, by)?;
                    self.twin.plain.send(&frames, by)?;
                    self.trace(step, None);
                    continue;
                }
                "send" => {
                    let sent = datagram(&words[1..])?;
                    self.twin.leased.send_by_kernel(&sent)?;
                    self.twin.plain.send_by_kernel(&sent)?;
                    self.trace(step, None);
                    continue;
                }
                "net" => {
                    self.arrived()?;
                    let done = self.twin.plain.change(&words[1..]);
                    ensure!(self.twin.leased.change(&words[1..]) == done, "{step}: one side alone can do it");
                    self.trace(step, None);
                    continue;
                }
                "join" => self.join(&words)?,
                name => self.call(name, &words)?,
            };
            self.trace(step, pair.as_ref());
            let Some(pair) = pair else { continue };
            let [plain, leased] = &pair;
            let found = differences(at, &words, plain, leased, self.mode);
            if !found.iter().all(Difference::is_measured) {
                match self.other_order(&words, &pair)? {
                    Some(Order::OfEachSame) => {
                        self.outcome.across_senders += 1;
                        continue;
                    }
                    Some(Order::OfOneAnother) if known::hands_over(&steps[..at]) => {
                        self.outcome.known.push(known::BEHIND);
                        continue;
                    }
                    Some(Order::OfOneAnother) if known::comes_by_two(&steps[..at]) => {
                        self.outcome.known.push(known::TWO_INTERFACES);
                        continue;
                    }
                    _ => {}
                }
            }
            for found in found {
                let explain = self.twin.folder.path().join("explain");
                if !note(&mut self.outcome, (&explain, &self.twin.struck), &steps[..=at], self.mode, found)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// If the answers to a step differ in the order of datagrams alone: in which.
    fn other_order(&mut self, words: &[&str], answers: &[String; 2]) -> Result<Option<Order>> {
        let (name, look) = match words {
            ["join", name] => (*name, actor_of(name).and_then(|actor| self.looks[actor].clone())),
            _ => (words[0], Look::of(words)),
        };
        let (Some(actor), Some(look)) = (actor_of(name), look) else { return Ok(None) };
        // Another actor that waits would take what is to be compared.
        let may_take = |side: &Subject, actor| side.is_busy(actor) && side.doing(actor) != Doing::Gone;
        let waits = |side: &Subject| (0..subject::ACTORS).any(|actor| may_take(side, actor));
        if self.sides.iter().any(waits) {
            return Ok(None);
        }
        order::differs_alone(&mut self.sides, actor, &look, answers)
    }

    fn trace(&self, step: &str, answers: Option<&[String; 2]>) {
        if self.is_traced {
            println!("{step}");
            if let Some([plain, leased]) = answers {
                println!("    plain:  {plain}\n    leased: {leased}");
            }
        }
    }

    fn arrived(&mut self) -> Result<()> {
        self.twin.plain.arrived()?;
        self.twin.leased.arrived()
    }

    /// `aN CALL...`: both answers. `aN& CALL...`: none yet; the call has been made, and may wait.
    fn call(&mut self, name: &str, words: &[&str]) -> Result<Option<[String; 2]>> {
        let waits = name.ends_with('&');
        let actor =
            actor_of(name.trim_end_matches('&')).with_context(|| format!("no step: {}", words.join(" ")))?;
        self.arrived()?;
        let _no_starts = may_lend(words[1]).then(subject::lends);
        // What a script says that was shortened, or has gone another way than planned, may have no meaning.
        if !self.sides.iter().all(|side| side.is_idle(actor)) {
            return Ok(None);
        }
        let starts = matches!(words[1], "thread" | "fork" | "_fork" | "clone");
        let started = if starts { actor_of(words[2]) } else { None };
        if started.is_some_and(|started| self.sides[PLAIN].who(started).is_some()) {
            return Ok(None);
        }
        let within = if may_lend(words[1]) { LENT } else { PROMPT };
        let mut answers = [String::new(), String::new()];
        // The leased side is the last one, so that its ring is still open for the frames that come next.
        for (side, answer) in self.sides.iter_mut().zip(&mut answers) {
            let line = match words[1..] {
                ["signal", other, number] => {
                    let Some((pid, tid)) = actor_of(other).and_then(|other| side.who(other)) else {
                        return Ok(None);
                    };
                    format!("kill {pid} {tid} {number}")
                }
                _ => words[1..].join(" "),
            };
            side.tell(actor, &line);
            if let Some(started) = started {
                side.expect(started);
            }
            if !waits {
                *answer = side.answer_or_state(actor, within)?;
            }
        }
        if waits {
            self.looks[actor] = Look::of(words);
            self.settled(actor)?;
            return Ok(None);
        }
        match words[1] {
            "shutdown" => self.others_settled()?,
            "signal" => {
                let other = words.get(2).and_then(|name| actor_of(name));
                for side in &self.sides {
                    other.map_or(Ok(()), |other| side.await_handler(other, PROMPT))?;
                }
            }
            _ => {}
        }
        if let Some(started) = started {
            self.both(started, PROMPT)?;
        }
        Ok(Some(answers))
    }

    fn both(&mut self, actor: usize, within: Duration) -> Result<[String; 2]> {
        let mut answers = [String::new(), String::new()];
        for (side, answer) in self.sides.iter_mut().zip(&mut answers) {
            *answer = side.answer_or_state(actor, within)?;
        }
        Ok(answers)
    }

    /// Waits until the call of an actor waits, or has returned, on both sides.
    fn settled(&mut self, actor: usize) -> Result<()> {
        let plain = settle(&mut self.sides[PLAIN], actor, Duration::ZERO)?;
        let leased = settle(&mut self.sides[LEASED], actor, Duration::ZERO)?;
        ensure!(plain && leased, "a call neither returns nor waits");
        Ok(())
    }

    /// Waits until calls that wait have noticed what another actor has done. Of a datagram that comes before that, it is by
    /// chance whether they receive it.
    fn others_settled(&mut self) -> Result<()> {
        for actor in 0..subject::ACTORS {
            if self.sides.iter().all(|side| side.is_busy(actor)) {
                self.settled(actor)?;
            }
        }
        Ok(())
    }

    /// `join aN`: what a call made by `aN&` has returned, or that it still waits. If others wait as well, it does not
    /// matter which of them was given a datagram: then what all of them have returned.
    fn join(&mut self, words: &[&str]) -> Result<Option<[String; 2]>> {
        let actor = words.get(1).and_then(|name| actor_of(name)).context("no actor")?;
        if !self.sides.iter().any(|side| side.is_busy(actor)) {
            return Ok(None);
        }
        self.arrived()?;
        // Of several that have waited for one datagram another one may have had it on the other side.
        let busy = self
            .sides
            .each_ref()
            .map(|side| (0..subject::ACTORS).filter(|actor| side.is_busy(*actor)).collect::<Vec<usize>>());
        let mut plain = Vec::new();
        for actor in &busy[PLAIN] {
            settle(&mut self.sides[PLAIN], *actor, Duration::from_micros(300))?;
            plain.push(self.sides[PLAIN].answer(*actor, Duration::ZERO)?);
        }
        let answered = plain.iter().flatten().count();
        let leased = self.leased_answers(&busy[LEASED], answered)?;
        let both = [plain, leased];
        if busy[PLAIN] == busy[LEASED]
            && let [[plain], [leased]] = both.each_ref().map(Vec::as_slice)
        {
            let text = |answer: &Option<String>| answer.clone().unwrap_or_else(|| "waits".to_owned());
            return Ok(Some([text(plain), text(leased)]));
        }
        // What was measured is another one's.
        Ok(Some(both.map(|answers| {
            let mut texts: Vec<String> = answers.into_iter().map(|answer| seen(answer.as_deref())).collect();
            texts.sort();
            texts.join(" and ")
        })))
    }

    /// The answers of the leased side to calls of which this many have returned on the plain side. Which ones returned
    /// may differ, and then each side goes on with another actor that waits.
    fn leased_answers(&mut self, busy: &[usize], answered: usize) -> Result<Vec<Option<String>>> {
        let side = &mut self.sides[LEASED];
        let deadline = Instant::now() + PROMPT;
        let mut answers = vec![None; busy.len()];
        while answers.iter().flatten().count() < answered && Instant::now() < deadline {
            for (actor, answer) in busy.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
                *answer = side.answer(*actor, Duration::from_micros(200))?;
            }
        }
        for (actor, answer) in busy.iter().zip(&mut answers).filter(|(_, answer)| answer.is_none()) {
            if answered == 0 || busy.len() > 1 {
                settle(side, *actor, SLEEPS)?;
            }
            *answer = side.answer(*actor, Duration::ZERO)?;
        }
        Ok(answers)
    }
}

fn seen(answer: Option<&str>) -> String {
    let words = answer.unwrap_or("waits").split(' ');
    // Different calls have different answers: what they have in common.
    words
        .filter(|word| ["ret=", "hash=", "waits"].iter().any(|start| word.starts_with(start)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Waits until an actor has an answer, or has slept for that long, or has run for [`RUNS`].
fn settle(side: &mut Subject, actor: usize, sleeps: Duration) -> Result<bool> {
    let deadline = Instant::now() + PROMPT;
    let mut ran_before = None;
    let mut slept_since = None;
    while Instant::now() < deadline {
        if side.has_answer(actor, Duration::from_micros(100))? {
            return Ok(true);
        }
        match side.doing(actor) {
            Doing::Gone => return Ok(true),
            Doing::Sleeps => {
                let since = *slept_since.get_or_insert_with(Instant::now);
                // It may have answered, and sleep for the next line.
                if since.elapsed() >= sleeps {
                    return Ok(true);
                }
            }
            Doing::Runs(ran) => {
                slept_since = None;
                if ran >= *ran_before.get_or_insert(ran) + RUNS {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

impl Twin {
    /// A script of fewer steps that fails in the same way.
    ///
    /// # Errors
    /// As [`Twin::run`].
    pub fn shorten(&mut self, script: &Script) -> Result<Script> {
        let kind = |outcome: Outcome| outcome.difference.map(|found| (found.kind, found.step));
        let Some((wanted, step)) = kind(self.run(script, false)?) else { return Ok(script.clone()) };
        let mut best = script.clone();
        best.steps.truncate(step + 1);
        best.steps.retain(|step| !step.starts_with('#'));
        let mut piece = best.steps.len() / 2;
        while piece > 0 {
            let mut at = 0;
            while at < best.steps.len() {
                let mut shorter = best.clone();
                shorter.steps.drain(at..(at + piece).min(best.steps.len()));
                match kind(self.run(&shorter, false)?) {
                    Some((kind, step)) if kind == wanted => {
                        shorter.steps.truncate(step + 1);
                        best = shorter;
                    }
                    _ => at += piece,
                }
            }
            piece /= 2;
        }
        Ok(best)
    }
}
