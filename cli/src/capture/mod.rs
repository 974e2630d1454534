//! `twinpath capture`: writes frames on the fast path of a running instance to a pcapng file. tcpdump does not see
//! them: frames received by AF_XDP never reach packet sockets, and frames sent by AF_XDP bypass them.

mod blocks;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};
use twinpath_observe::capture::SNAPLEN_MAX;
use twinpath_observe::command::{
    self as command, ANSWER_PATIENCE, Capture, Request, Topic, ask, find_instances, run_directories,
};
use twinpath_observe::report::Report;
use twinpath_wire::filter::Filter;

use self::blocks::Blocks;

/// How long the rest of the file may take after the capture was told to end.
const END_PATIENCE: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
#[command(
    after_help = "Requests that the kernel's programs answer by themselves, and their replies, have a comment: `answered by \
                  reflex`, `reply by reflex`."
)]
pub(crate) struct Args {
    /// Interface of an instance
    #[arg(long, value_name = "IFACE")]
    on: String,
    /// The pcapng file to write, or - for standard output
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// End after this number of frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this number of seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Bytes of each frame to keep; without it all, also of super-frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    snaplen: Option<u32>,
    /// The command socket of the instance; without it, it is found by the interface
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A filter as for tcpdump: `udp port 7 and not src host 10.0.0.1`
    filter: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let filter = args.filter.join(" ");
    filter.parse::<Filter>().context("the filter means nothing")?;
    let seconds = args.seconds.map(Duration::try_from_secs_f64).transpose();
    let seconds = seconds.context("--seconds is no length of time")?;
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        bail!("the file is not for a terminal: name one with -w FILE, or add `| tcpdump -r -`");
    }
    let socket = match args.socket {
        Some(socket) => socket,
        None => serving(&args.on)?,
    };
    let wish = Capture {
        interface: args.on,
        filter,
        snaplen: args.snaplen.map(|snaplen| snaplen.min(SNAPLEN_MAX)),
        count: args.count,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before the file is touched, so that a refused request changes nothing.
        let (reader, writer) = begin(&socket, wish).await?;
        let out: Box<dyn Write> = if to_stdout {
            Box::new(io::stdout())
        } else {
            let name = args.write.display();
            Box::new(File::create(&args.write).with_context(|| format!("cannot write {name}"))?)
        };
        let Followed { blocks, ended } = follow(reader, writer, out, seconds).await?;
        eprintln!("{blocks}");
        match ended {
            Ended::Whole | Ended::Unread => Ok(ExitCode::SUCCESS),
            Ended::Late => bail!(
                "the instance did not finish the file within {} s: its last frames, and the figures at its end, are missing",
                END_PATIENCE.as_secs()
            ),
            Ended::Interrupted => bail!(
                "interrupted again before the file was finished: its last frames, and the figures at its end, are missing"
            ),
            Ended::Broken(why) => bail!(
                "the instance ended before the capture did{why}: the frames up to then are in the file, the figures at its \
                 end are not"
            ),
        }
    })
}

/// The socket of the instance that serves `interface`.
fn serving(interface: &str) -> anyhow::Result<PathBuf> {
    let found = find_instances(&run_directories()).context("cannot look for instances")?;
    let places = found.places();
    let mut served = Vec::new();
    let mut serving = Vec::new();
    for socket in found.running {
        // An instance that ends meanwhile, or has another version, does not count.
        let Ok(answer) = ask(&socket, &Request::Show(Topic::Interfaces)) else { continue };
        let Ok(report) = serde_json::from_value::<Report>(answer) else { continue };
        let names = report.interfaces.into_iter().map(|interface| interface.name);
        for name in names {
            if name == interface {
                serving.push(socket.clone());
            }
            served.push(name);
        }
    }
    match (serving.as_slice(), served.as_slice()) {
        ([only], _) => Ok(only.clone()),
        ([], []) => bail!("no instance is running that can be asked (looked in {places})"),
        ([], served) => bail!("no instance serves {interface}; there is {}", served.join(", ")),
        (several, _) => {
            let list: String = several.iter().map(|socket| format!("\n  {}", socket.display())).collect();
            bail!("{} instances serve {interface}: name one with --socket{list}", several.len())
        }
    }
}

/// Requests the capture; all bytes read afterwards are the file.
async fn begin(socket: &Path, wish: Capture) -> anyhow::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
    let stream = command::connect(socket)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = serde_json::to_vec(&Request::Capture(wish))?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    let mut answer = Vec::new();
    let mut limited = (&mut reader).take(64 * 1024);
    let read = timeout(ANSWER_PATIENCE, limited.read_until(b'\n', &mut answer));
    read.await.context("the instance does not answer")??;
    if answer.is_empty() {
        bail!("the instance closed the connection: it is too busy, or stopping; try again");
    }
    command::interpret(socket, &answer)?;
    Ok((reader, writer))
}

/// A capture that is over.
struct Followed {
    blocks: Blocks,
    ended: Ended,
}

/// How a capture ended.
enum Ended {
    /// The instance has sent all of the file.
    Whole,
    /// The file's reader has gone.
    Unread,
    /// It was told to end, and the rest of the file did not arrive in time.
    Late,
    /// It was told to end a second time meanwhile.
    Interrupted,
    /// The connection ended before the file did; the kernel's error, if there is one.
    Broken(String),
}

/// Writes the file until the instance has sent all of it.
async fn follow(
    mut reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    mut out: Box<dyn Write>,
    seconds: Option<Duration>,
) -> anyhow::Result<Followed> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut due = seconds.map(|seconds| Instant::now() + seconds);
    // Dropping it tells the instance to end the capture.
    let mut writer = Some(writer);
    let mut blocks = Blocks::default();
    let mut room = vec![0; 256 * 1024];
    let ended = loop {
        let wait = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let mut is_signal = true;
        tokio::select! {
            read = reader.read(&mut room) => {
                let read = match read {
                    Ok(0) if blocks.are_whole() => break Ended::Whole,
                    Ok(0) => break Ended::Broken(String::new()),
                    Err(error) => break Ended::Broken(format!(" ({error})")),
                    Ok(read) => read,
                };
                blocks.see(&room[..read]);
                match out.write_all(&room[..read]).and_then(|()| out.flush()) {
                    Ok(()) => continue,
                    // The reader has closed its end of the pipe.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break Ended::Unread,
                    Err(error) => return Err(error).context("cannot write the file"),
                }
            }
            () = wait => is_signal = false,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if writer.take().is_none() {
            break if is_signal { Ended::Interrupted } else { Ended::Late };
        }
        due = Some(Instant::now() + END_PATIENCE);
    };
    Ok(Followed { blocks, ended })
}
