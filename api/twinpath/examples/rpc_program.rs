//! An ONC RPC program with one procedure that answers immediately and one that has to wait for a disk:
//! `cargo run --example rpc_program eth0`
use std::ops::RangeInclusive;
use twinpath::rpc::record::RecordLimits;
use twinpath::rpc::xdr::Reader;
use twinpath::rpc::{DuplicateLimits, Handled, Program, Refusal, Request, Results, RpcService, Server};
use twinpath::{Duration, Error};

const NAME_MAX: u32 = 255;
const LENGTH: u32 = 1;
const SIZE_OF: u32 = 2;

/// LENGTH returns the length of a string, SIZE_OF the size of the file with this name, in bytes.
struct Sizes;

impl Program for Sizes {
    fn number(&self) -> u32 {
        0x2000_0001
    }

    fn versions(&self) -> RangeInclusive<u32> {
        1..=1
    }

    fn results_max(&self) -> usize {
        4
    }

    fn answered_later(&self) -> &[(u32, u32)] {
        &[(1, SIZE_OF)]
    }

    fn call(&mut self, request: &Request<'_>, results: &mut Results<'_>) -> Result<Handled, Refusal> {
        let mut args = Reader::new(request.args);
        let name = args.opaque(NAME_MAX)?;
        match request.procedure {
            LENGTH => results.write_u32(name.len() as u32),
            SIZE_OF => {
                let path = String::from_utf8(name.to_vec()).map_err(|_| Refusal::GarbageArguments)?;
                return Ok(Handled::later(move |results| {
                    let file = std::fs::read(path).map_err(|_| Refusal::SystemError)?;
                    results.write_u32(file.len() as u32);
                    Ok(())
                }));
            }
            _ => return Err(Refusal::ProcedureUnavailable),
        }
        Ok(Handled::Now)
    }

    fn for_worker(&self) -> Box<dyn Program> {
        Box::new(Sizes)
    }
}

fn main() -> Result<(), Error> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    let duplicates = DuplicateLimits { calls: 64, age: Duration::from_secs(120) };
    // The seed keys the hash of the duplicate-request table; no replies are kept for these procedures.
    let server = Server::new(vec![Box::new(Sizes)], duplicates, 0).expect("one program with one version");
    let service = RpcService::new(server, RecordLimits { record_bytes: 4096, fragments: 8 });
    twinpath::serve(service).named("sizes").on(&interface).tcp(7009).udp(7009).run()
}
