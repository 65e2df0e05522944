//! The command line, in `varnishd`'s syntax: single letters, values attached or apart, flags joined.
//!
//! This only takes it apart and refuses what cannot be: values are read by whoever knows their kind.

use std::fmt;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `-a`, in order.
    pub(crate) listen: Vec<String>,
    /// `-b`.
    pub(crate) backend: Option<String>,
    /// `-f`, in order; an empty one is kept out, see [`Arguments::no_vcl`].
    pub(crate) vcl: Vec<String>,
    /// `-f ''`: begin without VCL and without serving.
    pub(crate) no_vcl: bool,
    /// `-C`: only show what VCL is made into.
    pub(crate) compile_only: bool,
    /// `-d`: stay in the foreground, take commands from standard input, and leave the start to them.
    pub(crate) debug: bool,
    /// `-F`: stay in the foreground.
    pub(crate) foreground: bool,
    /// `-I`: a file of commands for the start.
    pub(crate) commands: Option<String>,
    /// `-i`.
    pub(crate) identity: Option<String>,
    /// `-j`; of several the last.
    pub(crate) jail: Option<String>,
    /// `-l`.
    pub(crate) log_space: Option<String>,
    /// `-M`, in order.
    pub(crate) masters: Vec<String>,
    /// `-n`; of several the last.
    pub(crate) name: Option<String>,
    /// `-o recover`: stores that outlive a start make the list of their objects anew, from the objects.
    pub(crate) recover: bool,
    /// `-P`.
    pub(crate) pid_file: Option<String>,
    /// `-p`, in order, and `-t` as the parameter it stands for: name and value.
    pub(crate) parameters: Vec<(String, String)>,
    /// `-r`, taken apart.
    pub(crate) read_only: Vec<String>,
    /// `-S`.
    pub(crate) secret: Option<String>,
    /// `-s`, in order.
    pub(crate) storage: Vec<String>,
    /// `-T`, in order.
    pub(crate) cli: Vec<String>,
    /// `-W`.
    pub(crate) waiter: Option<String>,
    /// Options that are accepted and do nothing here, with the reason.
    pub(crate) warnings: Vec<String>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// `-V`.
    Version,
    /// `-?`.
    Usage,
    /// `-x`, with what is to be explained.
    Explain(String),
    /// Anything else.
    Run(Box<Arguments>),
}

/// Why the command line is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) String);

impl Error {
    /// Whether it is one that getopt(3) would find, which says so in its own way.
    pub(crate) fn is_getopt(&self) -> bool {
        self.0.starts_with("invalid option --") || self.0.starts_with("option requires an argument --")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Letters that take a value.
const VALUED: &str = "abfhiIjlMnoPprSstTWxE";
/// Letters that take none.
const PLAIN: &str = "CdFV?";

/// Reads the arguments after the program's name.
///
/// # Errors
/// [`Error`] naming the option and what is wrong.
pub(crate) fn parse(words: &[String]) -> Result<Task, Error> {
    if let [first, rest @ ..] = words
        && let Some(topic) = first.strip_prefix("-x")
    {
        let topic = if topic.is_empty() { rest.first().map(String::as_str) } else { Some(topic) };
        let topic = topic.ok_or_else(|| Error("option requires an argument -- 'x'".to_owned()))?;
        return Ok(Task::Explain(topic.to_owned()));
    }
    let mut arguments = Arguments::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(Error(format!("Too many arguments ({word}...)")));
        };
        if letters == "-" {
            if let Some(word) = words.next() {
                return Err(Error(format!("Too many arguments ({word}...)")));
            }
            break;
        }
        for (index, letter) in letters.char_indices() {
            if VALUED.contains(letter) {
                let attached = &letters[index + letter.len_utf8()..];
                let value =
                    if attached.is_empty() { words.next().map(String::as_str) } else { Some(attached) };
                let value =
                    value.ok_or_else(|| Error(format!("option requires an argument -- '{letter}'")))?;
                arguments.valued(letter, value)?;
                break;
            }
            if !PLAIN.contains(letter) {
                return Err(Error(format!("invalid option -- '{letter}'")));
            }
            match letter {
                'C' => arguments.compile_only = true,
                'F' => arguments.foreground = true,
                'V' => return Ok(Task::Version),
                '?' => return Ok(Task::Usage),
                _ => arguments.debug = true,
            }
        }
    }
    arguments.check()?;
    if arguments.waiter.as_deref() == Some("poll") {
        arguments.warnings.push("-W poll: connections are waited for by epoll".to_owned());
    }
    Ok(Task::Run(Box::new(arguments)))
}

fn once(slot: &mut Option<String>, letter: char, value: &str) -> Result<(), Error> {
    if slot.replace(value.to_owned()).is_some() {
        return Err(Error(format!("-{letter} can be used only once")));
    }
    Ok(())
}

impl Arguments {
    fn valued(&mut self, letter: char, value: &str) -> Result<(), Error> {
        match letter {
            'a' => self.listen.push(value.to_owned()),
            'b' => once(&mut self.backend, letter, value)?,
            'f' if value.is_empty() => self.no_vcl = true,
            'f' => self.vcl.push(value.to_owned()),
            'h' => self.hash(value)?,
            'i' => once(&mut self.identity, letter, value)?,
            'I' => once(&mut self.commands, letter, value)?,
            'j' => self.jail = Some(value.to_owned()),
            'l' => once(&mut self.log_space, letter, value)?,
            'M' => self.masters.push(value.to_owned()),
            'n' => self.name = Some(value.to_owned()),
            'o' if value == "recover" => self.recover = true,
            'o' => return Err(Error(format!("Unknown -o \"{value}\" (there is recover)"))),
            'P' => once(&mut self.pid_file, letter, value)?,
            'p' => {
                let (name, value) =
                    value.split_once('=').ok_or_else(|| Error(format!("-p lacks '=' ({value})")))?;
                self.parameters.push((name.to_owned(), value.to_owned()));
            }
            'r' => self
                .read_only
                .extend(value.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned)),
            'S' => once(&mut self.secret, letter, value)?,
            's' => self.storage.push(value.to_owned()),
            't' => self.parameters.push(("default_ttl".to_owned(), value.to_owned())),
            'T' => self.cli.push(value.to_owned()),
            'W' => self.waiter = Some(value.to_owned()),
            'x' => return Err(Error("-x must be the first argument".to_owned())),
            // Later versions of Varnish have it.
            _ => {
                return Err(Error(format!(
                    "-E {value}: extensions are programs for varnishd and cannot be loaded"
                )));
            }
        }
        Ok(())
    }

    fn hash(&mut self, value: &str) -> Result<(), Error> {
        let (method, argument) = match value.split_once(',') {
            Some((method, argument)) => (method, Some(argument)),
            None => (value, None),
        };
        match (method, argument) {
            ("critbit" | "simple_list", Some(_)) => {
                let name = method.trim_end_matches("_list");
                Err(Error(format!("Hash method \"{name}\" takes no arguments")))
            }
            // The number of buckets; Varnish takes anything here, too.
            ("critbit" | "simple_list" | "classic", _) => {
                self.warnings.push(format!("-h {value}: there is one kind of index"));
                Ok(())
            }
            _ => Err(Error(format!("Unknown hash method \"{method}\""))),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error(why.to_owned()));
        if self.backend.is_some() && (self.no_vcl || !self.vcl.is_empty()) {
            return refuse("Only one of -b or -f can be specified");
        }
        if self.no_vcl && !self.vcl.is_empty() {
            return refuse("Only one empty -f can be specified");
        }
        if self.debug && self.foreground {
            return refuse("Only one of -d or -F can be specified");
        }
        if self.compile_only && (self.debug || self.foreground) {
            let letter = if self.debug { 'd' } else { 'F' };
            return refuse(&format!("-{letter} makes no sense with -C"));
        }
        if self.backend.is_none() && self.vcl.is_empty() && !self.no_vcl && !self.debug {
            return refuse("Neither -b nor -f given. (use -f '' to override)");
        }
        self.check_waiter()
    }

    /// Nobody waits for what is only compiled.
    fn check_waiter(&self) -> Result<(), Error> {
        match self.waiter.as_deref() {
            None | Some("epoll" | "poll") => Ok(()),
            Some(_) if self.compile_only => Ok(()),
            Some(value) => Err(Error(format!("Unknown waiter method \"{value}\""))),
        }
    }
}

/// What `-V` prints. The first line has the shape that exporters look for in `varnishd -V`.
pub(crate) fn version() -> String {
    format!("copald (copal-{} revision {})\nBSD-2-Clause licence\n", env!("CARGO_PKG_VERSION"), revision())
}

/// The option letters as `getopt(3)` has them, for scripts that check them: Varnish's, and `-o`.
pub(crate) const OPTIONS: &str = "?a:b:Cdf:Fh:i:I:j:l:M:n:o:P:p:r:S:s:T:t:VW:x:";

/// The revision this was built from, where the build says it.
pub(crate) fn revision() -> &'static str {
    option_env!("COPAL_REVISION").unwrap_or("unknown")
}

/// What `-?` prints.
pub(crate) const USAGE: &str = "\
Usage: copald [options]

Basic options:

  -a [<name>=]address[:port][,proto] # HTTP listen address and port; may be given several times
     [,user=<u>][,group=<g>]   #   proto is HTTP (default) or PROXY; user, group and mode
     [,mode=<m>]               #   are for Unix sockets; default \":80\"
  -b none                      # No backend
  -b [addr[:port]|path]        # One backend: address or socket file
  -f vclfile                   # VCL program; may be given several times; '' begins without
  -n dir                       # Work directory

-b can be used only once, and not together with -f

Documentation options, of which one is the first argument:

  -?                           # Print this and exit
  -x parameter                 # Explain the parameters
  -x vsl                       # Explain the records of the request log
  -x cli                       # Explain the commands
  -x builtin                   # Print the built-in VCL
  -x optstring                 # Print the option letters

Operations options:

  -d                           # Take commands from standard input, and wait for them to start; ends with it
  -F                           # Stay in the foreground
  -T address[:port]            # Command line address; may be given several times; none for no command line
  -M address:port              # Connect there and take commands; may be given several times
  -P file                      # File that gets the process number
  -i identity                  # Name of this instance
  -I clifile                   # Commands that are given before the worker is started

Tuning options:

  -t TTL                       # Sets the parameter default_ttl
  -p param=value               # Sets a parameter; may be given several times
  -s [name=]kind[,options]     # A store; may be given several times
     malloc[,size]             #   in memory; default
     file,path[,size[,granularity[,advice]]]                      # in a mapped file
     persistent,path[,size][,memory=size][,region=size][,entries=number]  # on a disk, outlives a start
     tier[,memory=size],fast=path[:size],...,slow=path[:size],... # on several disks
     mse[,mse.conf]            #   Varnish Enterprise's stores, by its file
     buddy,size[,minpage]; fellow,path,dsksize,memsize,objsize_hint       # those of SLASH/
  -o recover                   # Stores on disk make the list of their objects anew, from the objects
  -l size                      # Sets the parameter vsl_space

Security options:

  -r param[,param...]          # Parameters that the command line may not set; may be given several times
  -S secret-file               # Secret of the command line; none for no secret
  -j jail[,options]            # Rights: none (keep them), or unix[,user=u][,ccgroup=g][,workuser=u] (the default of root)

Other options:

  -C                           # Print the checked VCL and exit
  -V                           # Print the version and exit
  -h kind, -W waiter           # Accepted, without effect
";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> Result<Arguments, String> {
        let words: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
        match parse(&words) {
            Ok(Task::Run(arguments)) => Ok(*arguments),
            Ok(task) => Err(format!("{task:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(line: &[&str], expected: impl FnOnce(&mut Arguments)) {
        let mut arguments = Arguments::default();
        expected(&mut arguments);
        assert_eq!(read(line), Ok(arguments), "{line:?}");
    }

    #[test]
    fn a_command_line_as_sites_have_it() {
        check(
            &[
                "-F",
                "-f",
                "file.vcl",
                "-a",
                "http=:0,HTTP",
                "-a",
                "proxy=:0,PROXY",
                "-p",
                "feature=+http2",
                "-p",
                "max_restarts=8",
                "-s",
                "malloc,6000m",
                "-s",
                "Transient=malloc,2000m",
            ],
            |arguments| {
                arguments.foreground = true;
                arguments.vcl = vec!["file.vcl".into()];
                arguments.listen = vec!["http=:0,HTTP".into(), "proxy=:0,PROXY".into()];
                arguments.parameters =
                    vec![("feature".into(), "+http2".into()), ("max_restarts".into(), "8".into())];
                arguments.storage = vec!["malloc,6000m".into(), "Transient=malloc,2000m".into()];
            },
        );
    }

    #[test]
    fn values_may_be_attached_and_flags_joined() {
        check(&["-Cb:8080", "-t120", "-ra,b c"], |arguments| {
            arguments.compile_only = true;
            arguments.backend = Some(":8080".into());
            arguments.parameters = vec![("default_ttl".into(), "120".into())];
            arguments.read_only = vec!["a".into(), "b".into(), "c".into()];
        });
        check(&["-f", "", "-j", "unix", "-jnone", "-W", "epoll", "-I", "x.cli", "--"], |arguments| {
            arguments.no_vcl = true;
            arguments.jail = Some("none".into());
            arguments.commands = Some("x.cli".into());
            arguments.waiter = Some("epoll".into());
        });
    }

    #[test]
    fn the_debug_mode_needs_no_vcl() {
        check(&["-d", "-M", "127.0.0.1 6082"], |arguments| {
            arguments.debug = true;
            arguments.masters = vec!["127.0.0.1 6082".into()];
        });
    }

    #[test]
    fn refusals_name_the_argument() {
        for (line, error) in [
            (&["-Q"][..], "invalid option -- 'Q'"),
            (&["-n"], "option requires an argument -- 'n'"),
            (&["extra"], "Too many arguments (extra...)"),
            (&["-f", "x", "--", "y"], "Too many arguments (y...)"),
            (&[], "Neither -b nor -f given. (use -f '' to override)"),
            (&["-b", "x", "-f", "y"], "Only one of -b or -f can be specified"),
            (&["-b", "x", "-b", "y"], "-b can be used only once"),
            (&["-f", "", "-f", "y"], "Only one empty -f can be specified"),
            (&["-b", "x", "-p", "foo"], "-p lacks '=' (foo)"),
            (&["-d", "-F"], "Only one of -d or -F can be specified"),
            (&["-d", "-C", "-b", "x"], "-d makes no sense with -C"),
            (&["-F", "-C", "-b", "x"], "-F makes no sense with -C"),
            (&["-E", "x.so"], "-E x.so: extensions are programs for varnishd and cannot be loaded"),
            (&["-F", "-x", "cli"], "-x must be the first argument"),
            (&["-x"], "option requires an argument -- 'x'"),
            (&["-b", "x", "-o", "foo"], "Unknown -o \"foo\" (there is recover)"),
            (&["-h", "foo,1"], "Unknown hash method \"foo\""),
            (&["-h", "critbit,1"], "Hash method \"critbit\" takes no arguments"),
            (&["-h", "simple_list,1"], "Hash method \"simple\" takes no arguments"),
            (&["-d", "-W", "foo"], "Unknown waiter method \"foo\""),
        ] {
            assert_eq!(read(line), Err(error.to_owned()), "{line:?}");
        }
    }

    #[test]
    fn asking_for_words_comes_first() {
        assert_eq!(parse(&["-V".to_owned(), "-Q".to_owned()]), Ok(Task::Version));
        assert_eq!(parse(&["-?".to_owned()]), Ok(Task::Usage));
        assert_eq!(parse(&["-x".to_owned(), "vsl".to_owned()]), Ok(Task::Explain("vsl".to_owned())));
        assert_eq!(parse(&["-xcli".to_owned(), "-F".to_owned()]), Ok(Task::Explain("cli".to_owned())));
        assert!(version().starts_with("copald (copal-"));
    }
}
