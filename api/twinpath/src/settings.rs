//! The settings of a builder: a file, and changes to its settings, applied at the start and again at each
//! reload.

use std::num::NonZeroU16;
use std::path::{Path as FilePath, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use twinpath_config::{Config, ConfigError, Given, Service as ServiceConfig, ServiceKind};
use twinpath_instance::plan::Plan;
use twinpath_instance::{Loaded, Parts, Source};
use twinpath_serve::{Prototype, ServeConfig, ServicePart};
use twinpath_service::{Reflex, ServiceCounters};
use twinpath_sys::descriptors;

use crate::error::Error;

/// The default name of a service.
const NAME: &str = "service";

/// The parts of an instance: these services, and those that the library's features add.
pub(crate) fn parts(services: &[Box<dyn Prototype>]) -> Parts<'_> {
    #[cfg(feature = "measure-fallback")]
    let measure_fallback =
        Some(twinpath_clients::fallback::measure_for_instance as twinpath_instance::MeasureFallback);
    #[cfg(not(feature = "measure-fallback"))]
    let measure_fallback = None;
    Parts { services, measure_fallback }
}

/// The transports of a service whose port the kernel chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) udp: bool,
    pub(crate) tcp: bool,
}

/// A configuration while the builder's changes are applied to it. Both lists have one entry for each
/// service, in the order in which they were added.
pub(crate) struct Draft {
    pub(crate) config: Config,
    pub(crate) chosen: Vec<Chosen>,
}

type Change = Box<dyn Fn(&mut Draft) + Send>;

/// Passes the program its own table of a file, once the file is in force.
type Applied = Box<dyn FnOnce()>;

/// Reads the program's own table of a file, if there is a file.
type Section = Box<dyn Fn(Option<(&str, &FilePath)>) -> Result<(Config, Applied), ConfigError> + Send>;

/// The settings.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) names: Vec<String>,
    pub(crate) file: Option<PathBuf>,
    changes: Vec<Change>,
    last: Option<Change>,
    section: Option<Section>,
}

impl Settings {
    pub(crate) fn add_service(&mut self) {
        let name = match self.names.len() {
            0 => NAME.to_owned(),
            before => format!("{NAME}-{}", before + 1),
        };
        self.names.push(name);
    }

    /// Names the service that was added last.
    pub(crate) fn name_service(&mut self, name: &str) {
        if let Some(last) = self.names.last_mut() {
            name.clone_into(last);
        }
    }

    pub(crate) fn change(&mut self, change: impl Fn(&mut Draft) + Send + 'static) {
        self.changes.push(Box::new(change));
    }

    /// A change of the service that was added last.
    pub(crate) fn change_service(&mut self, change: impl Fn(&mut Draft, usize) + Send + 'static) {
        let at = self.names.len() - 1;
        self.change(move |draft| change(draft, at));
    }

    /// Adds a change that is applied after all others.
    pub(crate) fn finish(&mut self, change: impl Fn(&mut Draft) + Send + 'static) {
        self.last = Some(Box::new(change));
    }

    /// The program's own table of the file.
    pub(crate) fn section<T: DeserializeOwned + Default + 'static>(
        &mut self,
        apply: impl Fn(T) + Send + Sync + 'static,
    ) {
        let apply = Arc::new(apply);
        self.section = Some(Box::new(move |file| {
            let (config, section) = match file {
                Some((text, file)) => Config::parse_with_program::<T>(text, file)?,
                None => (Config::default(), T::default()),
            };
            let apply = Arc::clone(&apply);
            Ok((config, Box::new(move || apply(section))))
        }));
    }

    /// The configuration and the plan for these services, and how to read them again, if there is a file.
    pub(crate) fn load(
        self,
        services: Vec<Box<dyn Prototype + Send>>,
    ) -> Result<(Loaded, Option<Source>), Error> {
        let services: Vec<Rc<dyn Prototype>> =
            services.into_iter().map(|it| Rc::from(it as Box<dyn Prototype>)).collect();
        let (config, plan, applied) = self.plan()?;
        applied();
        let shared =
            move || services.iter().map(|it| Box::new(Shared(Rc::clone(it))) as Box<dyn Prototype>).collect();
        let loaded = Loaded { config: config.clone(), plan, services: shared(), applied: None };
        let source = self.file.clone().map(|file| {
            let read = move || {
                let (config, plan, applied) = self.plan().map_err(|error| error.to_string())?;
                Ok(Loaded { config, plan, services: shared(), applied: Some(applied) })
            };
            Source { file, config, read: Box::new(read) }
        });
        Ok((loaded, source))
    }

    fn plan(&self) -> Result<(Config, Plan, Applied), Error> {
        let (config, given, applied) = self.read()?;
        let mut draft = Draft { config, chosen: vec![Chosen::default(); self.names.len()] };
        self.changes.iter().chain(&self.last).for_each(|change| change(&mut draft));
        let Draft { mut config, chosen } = draft;
        for ((service, chosen), name) in config.services.iter_mut().zip(&chosen).zip(&self.names) {
            let has_port = service.udp.is_some() || service.tcp.is_some() || chosen.udp || chosen.tcp;
            if !has_port && service.ethertype.is_none() && service.flows.is_empty() {
                let which = if self.names.len() > 1 { format!(" by `{name}`") } else { String::new() };
                let sentence =
                    format!("what is to be served{which}? Add udp(PORT), tcp(PORT) or ethertype(TYPE)");
                return Err(Error::Invalid(vec![sentence]));
            }
            // The kind of a program's own service determines which settings may be combined.
            let kind = if service.ethertype.is_some() { ServiceKind::Reflect } else { ServiceKind::Echo };
            (service.name, service.kind) = (Some(name.clone()), Some(kind));
        }
        let judged = with_chosen(&config, &chosen);
        // If raising is refused, the limit of descriptors is noticed where it is reached.
        let files = descriptors::raise_limit().and_then(|hard| judged.check_open_files(hard));
        let faults: Vec<String> =
            judged.validate().into_iter().chain(files).map(|fault| fault.to_string()).collect();
        let mut plan = Plan::of(&config).filter(|_| faults.is_empty()).ok_or(Error::Invalid(faults))?;
        for (planned, chosen) in plan.services.iter_mut().zip(&chosen) {
            planned.udp = if chosen.udp { Some(0) } else { planned.udp };
            planned.tcp = if chosen.tcp { Some(0) } else { planned.tcp };
        }
        // The kind is set here, so it is not reported as a setting of the program.
        plan.settings = config.settings(&Config::default(), &given);
        plan.settings.retain(|setting| setting.key != "service.kind");
        Ok((config, plan, applied))
    }

    /// Reads the file, with one table for each service, in their order.
    fn read(&self) -> Result<(Config, Given, Applied), Error> {
        let Some(file) = &self.file else {
            let services = self.names.iter().map(|_| ServiceConfig::default()).collect();
            let (config, applied) = self.parse(None)?;
            return Ok((Config { services, ..config }, Given::default(), applied));
        };
        let text =
            std::fs::read_to_string(file).map_err(|error| ConfigError::Read { file: file.clone(), error })?;
        let (mut config, applied) = self.parse(Some((&text, file)))?;
        config.services = self.line_up(config.services, file)?;
        Ok((config, Given::of_file(&text), applied))
    }

    fn parse(&self, file: Option<(&str, &FilePath)>) -> Result<(Config, Applied), ConfigError> {
        match (&self.section, file) {
            (Some(section), file) => section(file),
            (None, Some((text, file))) => Ok((Config::parse(text, file)?, Box::new(|| ()))),
            (None, None) => Ok((Config::default(), Box::new(|| ()))),
        }
    }

    fn line_up(&self, mut read: Vec<ServiceConfig>, file: &FilePath) -> Result<Vec<ServiceConfig>, Error> {
        if let ([_], [_]) = (self.names.as_slice(), read.as_slice()) {
            return Ok(read);
        }
        let invalid = |sentence: String| Error::Invalid(vec![format!("{}: {sentence}", file.display())]);
        if let [_] = self.names.as_slice() {
            return Err(invalid(
                "service: this program serves one: leave one table [service] in the file".to_owned(),
            ));
        }
        let own = self.names.iter().map(|name| {
            let at = read.iter().position(|service| service.name.as_ref() == Some(name));
            at.map_or_else(ServiceConfig::default, |at| read.remove(at))
        });
        let own = own.collect();
        match read.iter().find(|service| **service != ServiceConfig::default()) {
            None => Ok(own),
            Some(other) => {
                let (other, names) =
                    (other.name.as_deref().unwrap_or("(without a name)"), self.names.join("`, `"));
                Err(invalid(format!("service: {other}: this program has the services `{names}`")))
            }
        }
    }
}

/// The configuration with a placeholder in place of each port that the kernel chooses, because validation
/// does not accept port 0.
fn with_chosen(config: &Config, chosen: &[Chosen]) -> Config {
    let mut judged = config.clone();
    let taken: Vec<NonZeroU16> =
        config.services.iter().flat_map(|service| [service.udp, service.tcp]).flatten().collect();
    let mut free = (1..=u16::MAX).rev().filter_map(NonZeroU16::new).filter(|port| !taken.contains(port));
    for (service, chosen) in judged.services.iter_mut().zip(chosen) {
        for (_, port) in
            [(chosen.udp, &mut service.udp), (chosen.tcp, &mut service.tcp)].into_iter().filter(|it| it.0)
        {
            *port = free.next();
        }
    }
    judged
}

/// A service of the builder, which each reload gets again.
struct Shared(Rc<dyn Prototype>);

impl Prototype for Shared {
    fn defers(&self) -> bool {
        self.0.defers()
    }

    fn lanes(&self) -> u32 {
        self.0.lanes()
    }

    fn sends_later(&self) -> bool {
        self.0.sends_later()
    }

    fn may_loop(&self) -> bool {
        self.0.may_loop()
    }

    fn reflex(&self) -> Reflex {
        self.0.reflex()
    }

    fn part(&self, config: ServeConfig) -> (ServicePart, Option<Arc<ServiceCounters>>) {
        self.0.part(config)
    }
}
