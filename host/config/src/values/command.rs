//! The commands of the program.

/// A command of the program that has options for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `twinpath serve --config FILE`
    Serve,
    /// `twinpath serve echo`
    ServeEcho,
    /// `twinpath serve discard`
    ServeDiscard,
    /// `twinpath serve chargen`
    ServeChargen,
    /// `twinpath serve reflect`
    ServeReflect,
    /// `twinpath serve rpc`
    ServeRpc,
    /// `twinpath serve nfs`
    ServeNfs,
    /// `twinpath bridge`
    Bridge,
    /// `twinpath switch`
    Switch,
    /// `twinpath bench`
    Bench,
    /// `twinpath tune`
    Tune,
}
