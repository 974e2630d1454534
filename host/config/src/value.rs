//! The types of key values: how an option's text is parsed, and which values are possible.

use std::fmt::Display;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;

use twinpath_sys::affinity::parse_cpu_list;
use twinpath_wire::EtherType;
use twinpath_worker::idle::{Mode, RequestSetting};
use twinpath_worker::thread::priority::Priority;
use twinpath_worker::thread::request::RequestScope;

use super::key::{KeyValue, Takes};
use super::limits::LimitOverrides;
use super::rpc::RpcOverrides;
use crate::values::{
    AddressList, AttachAsked, CpuGoal, DatapathId, Endpoint, ExportText, FailMode, FlowText, LatencyGoal,
    MetricsAddress, Offload, OnExit, PathAsked, PortMode, PortName, PortOffload, Receive, ReflexAsked,
    Sandbox, ServiceKind, SourceText, StaticEntry, TcpPathAsked, VlanList,
};

fn parse<T: FromStr<Err: Display>>(texts: &[String]) -> Result<T, String> {
    let text = texts.last().map_or("", String::as_str);
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_each<T: FromStr<Err: Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse().map_err(|error: T::Err| error.to_string())).collect()
}

/// The names of all values, in Markdown.
fn words(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

macro_rules! parsed {
    ($($Type:ty: $values:expr;)+) => {
        $(impl KeyValue for $Type {
            fn read(texts: &[String]) -> Result<Self, String> {
                parse(texts)
            }

            fn values() -> String {
                $values
            }
        })+
    };
}

parsed! {
    Mode: words(&Mode::ALL.map(Mode::name));
    RequestSetting: words(&RequestSetting::ALL.map(RequestSetting::name));
    RequestScope: words(&RequestScope::ALL.map(RequestScope::name));
    PathAsked: words(&PathAsked::ALL.map(PathAsked::name));
    AttachAsked: words(&AttachAsked::ALL.map(AttachAsked::name));
    ReflexAsked: words(&ReflexAsked::ALL.map(ReflexAsked::name));
    TcpPathAsked: words(&TcpPathAsked::ALL.map(TcpPathAsked::name));
    Sandbox: words(&Sandbox::ALL.map(Sandbox::name));
    ServiceKind: words(&ServiceKind::ALL.map(ServiceKind::name));
    PortMode: words(&PortMode::ALL.map(PortMode::name));
    OnExit: words(&OnExit::WORDS);
    FailMode: words(&FailMode::ALL.map(FailMode::name));
    Offload: words(&Offload::ALL.map(Offload::name));
    Receive: words(&Receive::ALL.map(Receive::name));
    PortOffload: words(&PortOffload::ALL.map(PortOffload::name));
    DatapathId: String::new();
    PortName: String::new();
    VlanList: String::new();
    AddressList: String::new();
    IpAddr: String::new();
    Priority: String::new();
    LatencyGoal: String::new();
    CpuGoal: String::new();
    MetricsAddress: String::new();
    String: String::new();
    PathBuf: String::new();
}

macro_rules! numbers {
    ($($Type:ty),+) => {
        $(impl KeyValue for $Type {
            fn read(texts: &[String]) -> Result<Self, String> {
                parse(texts)
            }

            fn number(&self) -> Option<u64> {
                Some(u64::from(*self))
            }
        })+
    };
}

numbers!(u32, u64);

impl KeyValue for NonZeroU16 {
    fn read(texts: &[String]) -> Result<Self, String> {
        parse(texts).map_err(|_| "ports are 1 to 65535".to_owned())
    }

    fn number(&self) -> Option<u64> {
        Some(u64::from(self.get()))
    }
}

/// EtherTypes are the only 16-bit numbers; they are written as `0x88b5`.
impl KeyValue for u16 {
    fn read(texts: &[String]) -> Result<Self, String> {
        parse::<EtherType>(texts).map(|ethertype| ethertype.0)
    }
}

impl KeyValue for bool {
    const TAKES: Takes = Takes::Nothing;

    fn read(_: &[String]) -> Result<Self, String> {
        Ok(true)
    }

    fn values() -> String {
        words(&["true", "false"])
    }
}

impl<T: KeyValue> KeyValue for Option<T> {
    const TAKES: Takes = T::TAKES;

    fn read(texts: &[String]) -> Result<Self, String> {
        T::read(texts).map(Some)
    }

    fn number(&self) -> Option<u64> {
        self.as_ref().and_then(T::number)
    }

    fn values() -> String {
        T::values()
    }
}

/// The only list of numbers is one of CPUs. Its option takes the whole list, as `0,2-3`.
impl KeyValue for Vec<u32> {
    fn read(texts: &[String]) -> Result<Self, String> {
        let list = texts.last().map_or("", String::as_str);
        let cpus = parse_cpu_list(list).map_err(|error| error.to_string())?;
        // The kernel supports at most 1024.
        Ok(cpus.into_iter().map(|cpu| cpu as u32).collect())
    }
}

macro_rules! lists {
    ($($Type:ty),+) => {
        $(impl KeyValue for Vec<$Type> {
            const TAKES: Takes = Takes::Several;

            fn read(texts: &[String]) -> Result<Self, String> {
                parse_each(texts)
            }
        })+
    };
}

lists!(IpAddr, Endpoint, ExportText, FlowText, SourceText, StaticEntry);

macro_rules! tables {
    ($($Type:ty),+) => {
        $(impl KeyValue for $Type {
            fn read(_: &[String]) -> Result<Self, String> {
                Err("this is a table: write it in the file".to_owned())
            }
        })+
    };
}

tables!(LimitOverrides, RpcOverrides);
