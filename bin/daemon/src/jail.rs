//! `-j`: which rights the two processes keep.
//!
//! | | manager | worker |
//! |---|---|---|
//! | `none` | all it was started with | the same |
//! | `unix` | root's files and workers, no other capability | another user, no capability, none to be had |
//!
//! What needs root (low ports, the secret, the owner of a Unix socket) is done by the manager before and between; what
//! strangers can talk to runs without. Where nothing is asked for, root gets `unix` if the users are there, others `none`.

use copal_net as net;
use net::accounts;
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::fmt;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The user whose login group owns what tools read, where none is named.
const USER: &str = "varnish";
/// The user that the worker runs as, where none is named and it exists.
const WORK_USER: &str = "vcache";

/// A `-j` that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jail {
    /// Nothing.
    None,
    /// All but what is needed.
    Unix {
        /// Whom the worker runs as.
        worker: u32,
        /// Its group, whose members may read the request log and the counters.
        group: u32,
    },
}

impl Jail {
    /// Reads `-j`, `argument` if it was given. Asks for users and groups.
    ///
    /// # Errors
    /// There is no such jail, user or group, or we are not root.
    pub(crate) fn parse(argument: Option<&str>) -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        let Some(argument) = argument else {
            let found = if root { Self::unix("").ok() } else { None };
            return Ok(found.unwrap_or(Self::None));
        };
        let (kind, options) = argument.split_once(',').unwrap_or((argument, ""));
        match kind {
            "" => Err(Error("-j argument is empty".into())),
            "none" if argument.contains(',') => Err(Error("-jnone takes no arguments.".into())),
            "none" => Ok(Self::None),
            "unix" if !root => Err(Error("Unix Jail: Must be root.".into())),
            "unix" => Self::unix(options),
            _ => Err(Error(format!("Unknown jail method \"{kind}\""))),
        }
    }

    fn unix(options: &str) -> Result<Self, Error> {
        let (mut user, mut worker) = (None, None);
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("user", name)) => user = Some((name, find_user(name)?)),
                Some(("workuser", name)) => worker = Some((name, find_user(name)?)),
                // For a compiler, of which there is none: VCL is compiled by the manager itself.
                Some(("ccgroup", name)) => {
                    let found = accounts::group(name).ok().flatten();
                    found.ok_or_else(|| Error(format!("Unix jail: {name} group not found.")))?;
                }
                _ => return Err(Error(format!("Unix jail: unknown sub-argument '{option}'"))),
            }
        }
        let (user_name, user) = match user {
            Some(user) => user,
            None => (USER, find_user(USER)?),
        };
        let (worker_name, worker) = match worker {
            Some(worker) => worker,
            // Varnish's own, if it is there and of the same group; else one user for all.
            None => match find_user(WORK_USER) {
                Ok(found) if found.group == user.group => (WORK_USER, found),
                _ => (user_name, user),
            },
        };
        if worker.group != user.group {
            return Err(Error(format!(
                "Unix jail: user {user_name} and {worker_name} have different login groups"
            )));
        }
        Ok(Self::Unix { worker: worker.id, group: worker.group })
    }

    /// Its name, for the line that says what runs where.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unix { .. } => "unix",
        }
    }

    /// Makes a directory of the work directory in which the manager writes and the group reads. One that is there is taken.
    ///
    /// # Errors
    /// It cannot be made or given away.
    pub(crate) fn manager_directory(self, path: &Path) -> io::Result<()> {
        let Self::Unix { group, .. } = self else { return Ok(()) };
        make(path)?;
        chown(path, None, Some(group))?;
        // The bit 2000: what is made in it belongs to its group.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o2750))
    }

    /// As [`Jail::manager_directory`], where the worker writes.
    ///
    /// # Errors
    /// It cannot be made or given away.
    pub(crate) fn worker_directory(self, path: &Path) -> io::Result<()> {
        let Self::Unix { worker, group } = self else { return Ok(()) };
        make(path)?;
        chown(path, Some(worker), Some(group))
    }

    /// Makes a file that the worker reads and writes, or gives it one that is there. Others get no rights to it.
    ///
    /// # Errors
    /// It cannot be made or given away.
    pub(crate) fn worker_file(self, path: &Path) -> io::Result<()> {
        let Self::Unix { worker, group } = self else { return Ok(()) };
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        chown(path, Some(worker), Some(group))
    }

    /// Whether the worker may pass through all directories above `path`, as far as they can be looked at. Access lists
    /// and the like are not looked at.
    pub(crate) fn worker_reaches(self, path: &Path) -> bool {
        let Self::Unix { worker, group } = self else { return true };
        path.ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty())
            .all(|above| std::fs::metadata(above).map_or(true, |found| passes(worker, group, &found)))
    }

    /// Gives up what the manager does not need once it listens: for the calling thread and those that it makes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn settle_manager(self) -> io::Result<()> {
        if self == Self::None {
            return Ok(());
        }
        let needed = CapabilitySet::CHOWN
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID
            | CapabilitySet::KILL
            | CapabilitySet::SETGID
            | CapabilitySet::SETUID;
        let had = rustix::thread::capabilities(None)?;
        let sets = CapabilitySets {
            effective: had.effective & needed,
            permitted: had.permitted & needed,
            inheritable: CapabilitySet::empty(),
        };
        Ok(rustix::thread::set_capabilities(None, sets)?)
    }

    /// Has `command` run as the worker's user. The kernel takes all capabilities from a process that leaves root.
    pub(crate) fn confine(self, command: &mut Command) {
        if let Self::Unix { worker, group } = self {
            command.uid(worker).gid(group);
        }
    }

    /// Gives up for ever to come to more rights by starting programs: for the worker, before it has threads.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn settle_worker() -> io::Result<()> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        Ok(rustix::thread::set_no_new_privs(true)?)
    }
}

/// Whether a user of that group may pass through a directory. Of the three sets of rights the first that fits counts.
fn passes(user: u32, group: u32, directory: &Metadata) -> bool {
    let shift = match () {
        () if directory.uid() == user => 6,
        () if directory.gid() == group => 3,
        () => 0,
    };
    directory.mode() >> shift & 1 == 1
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o750).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn find_user(name: &str) -> Result<accounts::User, Error> {
    let found = accounts::user(name).ok().flatten();
    found.ok_or_else(|| Error(format!("Unix jail: {name} user not found.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of this run alone: one that was killed leaves its files.
    fn unique() -> u64 {
        use std::hash::{BuildHasher as _, RandomState};
        RandomState::new().hash_one(())
    }

    fn refused(argument: &str, why: &str) {
        assert_eq!(Jail::parse(Some(argument)).unwrap_err().to_string(), why, "{argument}");
    }

    #[test]
    fn without_asking_for_users() {
        assert_eq!(Jail::parse(Some("none")), Ok(Jail::None));
        refused("", "-j argument is empty");
        refused("none,x", "-jnone takes no arguments.");
        refused("foo", "Unknown jail method \"foo\"");
    }

    #[test]
    fn what_the_worker_reaches() {
        let directory = std::env::temp_dir().join(format!("copald-reach-{}", unique()));
        std::fs::create_dir_all(&directory).unwrap();
        let owner = std::fs::metadata(&directory).unwrap();
        let socket = directory.join("socket");
        let check = |mode: u32, worker: u32, group: u32, expected: bool| {
            std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
            let jail = Jail::Unix { worker, group };
            assert_eq!(jail.worker_reaches(&socket), expected, "{mode:o} {worker} {group}");
        };
        let (user, group) = (owner.uid(), owner.gid());
        check(0o700, user + 1, group + 1, false);
        check(0o701, user + 1, group + 1, true);
        check(0o701, user + 1, group, false);
        check(0o710, user + 1, group, true);
        check(0o700, user, group, true);
        check(0o077, user, group, false);
        assert!(Jail::None.worker_reaches(&socket));
        std::fs::remove_dir(&directory).unwrap();
    }

    #[test]
    fn users_and_groups() {
        if !rustix::process::geteuid().is_root() {
            refused("unix", "Unix Jail: Must be root.");
            assert_eq!(Jail::parse(None), Ok(Jail::None));
            return;
        }
        refused("unix,bla=foo", "Unix jail: unknown sub-argument 'bla=foo'");
        refused("unix,user=///", "Unix jail: /// user not found.");
        refused("unix,workuser=///", "Unix jail: /// user not found.");
        refused("unix,ccgroup=///", "Unix jail: /// group not found.");
        refused(
            "unix,user=daemon,workuser=bin",
            "Unix jail: user daemon and bin have different login groups",
        );
        let daemon = accounts::user("daemon").unwrap().unwrap();
        let jail = Jail::Unix { worker: daemon.id, group: daemon.group };
        assert_eq!(Jail::parse(Some("unix,user=daemon,workuser=daemon,ccgroup=root")), Ok(jail));
    }
}
