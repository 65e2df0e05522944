//! The loaded VCLs and the commands about them.
//!
//! ```text
//!              vcl.load, vcl.inline
//!                      |
//!   cold <-(cools down, vcl.state)-> warm --vcl.use--> active --another vcl.use--> warm
//!      \______________ vcl.discard ______/                  (never discarded, never cold)
//! ```
//! A VCL in state `auto` is warm when loaded, and cools down once it has not been active for `vcl_cooldown` seconds.

use super::Management;
use super::table::Columns;
use crate::compile::{self, read_file};
use crate::plant::{Compiled, Load, Plant, Source};
use admin::{Reply, json};
use base::Time;
use copal_admin as admin;
use copal_base as base;
use copal_observe::glob;
use std::fmt::Write as _;

/// The state that an operator asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Auto,
    Cold,
    Warm,
}

impl State {
    const ALL: [(Self, &'static str); 3] = [(Self::Auto, "auto"), (Self::Cold, "cold"), (Self::Warm, "warm")];

    fn parse(text: &str) -> Result<Self, Reply> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(state, _)| *state)
            .ok_or_else(|| Reply::wrong("State must be one of auto, cold or warm."))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// A loaded VCL.
#[derive(Debug)]
pub(super) struct Loaded<Program> {
    pub(super) name: String,
    compiled: Compiled<Program>,
    state: State,
    warm: bool,
    /// When it was loaded or last ceased to be active.
    last_used: Time,
}

impl<Program> Loaded<Program> {
    /// What the plant needs of it.
    pub(super) fn load(&self) -> Load<'_, Program> {
        Load { name: &self.name, program: &self.compiled.program, warm: self.warm }
    }
}

/// The loaded VCLs, oldest first.
#[derive(Debug)]
pub(super) struct Table<Program> {
    vcls: Vec<Loaded<Program>>,
    active: Option<String>,
}

impl<Program> Default for Table<Program> {
    fn default() -> Self {
        Self { vcls: Vec::new(), active: None }
    }
}

impl<Program> Table<Program> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Loaded<Program>> {
        self.vcls.iter()
    }

    /// The active VCL.
    pub(super) fn active(&self) -> Option<&Loaded<Program>> {
        self.find(self.active.as_deref()?)
    }

    fn is_active(&self, name: &str) -> bool {
        self.active.as_deref() == Some(name)
    }

    fn find(&self, name: &str) -> Option<&Loaded<Program>> {
        self.vcls.iter().find(|vcl| vcl.name == name)
    }

    fn find_mut(&mut self, name: &str) -> Result<&mut Loaded<Program>, Reply> {
        let found = self.vcls.iter_mut().find(|vcl| vcl.name == name);
        found.ok_or_else(|| Reply::wrong(format!("No VCL named {name} known\n")))
    }
}

/// Checks the name of a VCL to be.
fn check_name(name: &str) -> Result<(), Reply> {
    let wrong = name.char_indices().find(|&(index, c)| match index {
        0 => !c.is_ascii_alphabetic(),
        _ => !(c.is_ascii_alphanumeric() || c == '_' || c == '-'),
    });
    match wrong {
        Some((_, c)) => Err(Reply::wrong(format!("Illegal character in VCL name ('{c}')"))),
        None if name.is_empty() => Err(Reply::wrong("Empty VCL name")),
        None => Ok(()),
    }
}

fn failed_compilation(message: &str) -> Reply {
    Reply::wrong(format!("{}VCL compilation failed", compile::failure(message)))
}

impl<P: Plant> Management<P> {
    pub(super) fn vcl_load(&mut self, name: &str, file: &str, state: Option<&str>) -> Reply {
        match read_file(file, &self.parameters.vcl_path) {
            Ok(source) => self.vcl_source(name, &source, state),
            // What is wrong with the name comes first, as in Varnish.
            Err(why) => self.check_new(name).err().unwrap_or_else(|| failed_compilation(&why)),
        }
    }

    pub(super) fn vcl_inline(&mut self, name: &str, text: &str, state: Option<&str>) -> Reply {
        let source = Source { name: "<vcl.inline>".to_owned(), text: text.as_bytes().to_vec() };
        self.vcl_source(name, &source, state)
    }

    pub(super) fn vcl_source(&mut self, name: &str, source: &Source, state: Option<&str>) -> Reply {
        self.add_vcl(name, source, state).unwrap_or_else(|refusal| refusal)
    }

    fn check_new(&self, name: &str) -> Result<(), Reply> {
        check_name(name)?;
        match self.vcls.find(name) {
            Some(_) => Err(Reply::wrong(format!("Already a VCL named {name}"))),
            None => Ok(()),
        }
    }

    fn add_vcl(&mut self, name: &str, source: &Source, state: Option<&str>) -> Result<Reply, Reply> {
        let state = state.map_or(Ok(State::Auto), State::parse)?;
        self.check_new(name)?;
        let crowded =
            self.vcls.vcls.len() as u64 >= self.parameters.max_vcl && self.parameters.max_vcl_handling > 0;
        let count = self.vcls.vcls.len();
        if crowded && self.parameters.max_vcl_handling == 2 {
            return Err(Reply::cant(format!(
                "Too many ({count}) VCLs already loaded\n(See max_vcl and max_vcl_handling parameters)"
            )));
        }
        let compiled =
            self.plant.compile(source, &self.parameters).map_err(|message| failed_compilation(&message))?;
        let now = self.now_time();
        let vcl =
            Loaded { name: name.to_owned(), compiled, state, warm: state != State::Cold, last_used: now };
        if self.plant.running() {
            self.plant.load(&vcl.load()).map_err(|why| {
                let why = why.trim_end_matches('\n').replace('\n', "\n\t");
                Reply::wrong(format!("VCL \"{name}\" Failed initialization\nMessage:\n\t{why}\n"))
            })?;
        }
        self.vcls.vcls.push(vcl);
        Ok(match crowded {
            true => Reply::ok(format!(
                "{} VCLs loaded\nRemember to vcl.discard the old/unused VCLs.\n",
                count + 1
            )),
            false => Reply::done(),
        })
    }

    pub(super) fn vcl_use(&mut self, name: &str) -> Reply {
        let running = self.plant.running();
        let now = self.now_time();
        let vcl = match self.vcls.find_mut(name) {
            Ok(vcl) => vcl,
            Err(refusal) => return refusal,
        };
        if vcl.state == State::Cold {
            return Reply::cant(format!("VCL '{name}' is cold - set to auto or warm first"));
        }
        if !vcl.warm {
            vcl.warm = true;
            if running {
                self.plant.set_warm(name, true);
            }
        }
        if let Some(old) = self.vcls.active.replace(name.to_owned())
            && let Ok(old) = self.vcls.find_mut(&old)
        {
            old.last_used = now;
        }
        if running {
            self.plant.activate(name);
        }
        Reply::done()
    }

    pub(super) fn vcl_state(&mut self, name: &str, state: &str) -> Reply {
        self.change_state(name, state).map_or_else(|refusal| refusal, |()| Reply::done())
    }

    fn change_state(&mut self, name: &str, state: &str) -> Result<(), Reply> {
        let active = self.vcls.is_active(name);
        let running = self.plant.running();
        let now = self.now_time();
        let vcl = self.vcls.find_mut(name)?;
        let state = State::parse(state)?;
        if active && state == State::Cold {
            return Err(Reply::cant("Cannot set the active VCL cold."));
        }
        vcl.state = state;
        vcl.last_used = now;
        let warm = match state {
            State::Auto => vcl.warm,
            State::Cold => false,
            State::Warm => true,
        };
        if warm != vcl.warm {
            vcl.warm = warm;
            if running {
                self.plant.set_warm(name, warm);
            }
        }
        Ok(())
    }

    /// Lets VCLs cool down that nobody has used for a while.
    pub(super) fn cool_down(&mut self, now: Time) {
        let cooldown = self.parameters.vcl_cooldown;
        let running = self.plant.running();
        let active = self.vcls.active.clone();
        for vcl in &mut self.vcls.vcls {
            let idle = vcl.state == State::Auto && active.as_deref() != Some(vcl.name.as_str());
            if vcl.warm && idle && now - vcl.last_used >= cooldown {
                vcl.warm = false;
                if running {
                    self.plant.set_warm(&vcl.name, false);
                }
            }
        }
    }

    pub(super) fn vcl_discard(&mut self, patterns: &[String]) -> Reply {
        let mut doomed: Vec<String> = Vec::new();
        for pattern in patterns {
            let mut matched = self.vcls.iter().filter(|vcl| glob::matches(pattern, &vcl.name)).peekable();
            if matched.peek().is_none() {
                return Reply::wrong(format!("No VCL name matches {pattern}\n"));
            }
            for vcl in matched {
                if self.vcls.is_active(&vcl.name) {
                    return Reply::cant(format!("Cannot discard active VCL program {}\n", vcl.name));
                }
                if !doomed.contains(&vcl.name) {
                    doomed.push(vcl.name.clone());
                }
            }
        }
        self.vcls.vcls.retain(|vcl| !doomed.contains(&vcl.name));
        if self.plant.running() {
            for name in &doomed {
                self.plant.discard(name);
            }
        }
        Reply::done()
    }

    pub(super) fn vcl_list(&self, json: bool) -> Reply {
        if json {
            return self.vcl_list_json();
        }
        let mut columns = Columns::default();
        for (status, vcl, users) in self.listed() {
            let users = users.map_or("-".to_owned(), |users| users.to_string());
            columns.row(&[status, vcl.state.name(), temperature(vcl), &format!("{users:>6}"), &vcl.name]);
        }
        for (name, users) in self.lingering() {
            columns.row(&["discarded", "cold", "busy", &format!("{users:>6}"), &name]);
        }
        Reply::ok(columns.print())
    }

    /// Discarded VCLs that are still in use.
    fn lingering(&self) -> Vec<(String, usize)> {
        if self.plant.running() { self.plant.lingering() } else { Vec::new() }
    }

    /// Each VCL with its status and, while running, its number of users.
    fn listed(&self) -> impl Iterator<Item = (&'static str, &Loaded<P::Program>, Option<usize>)> {
        self.vcls.iter().map(|vcl| {
            let status = if self.vcls.is_active(&vcl.name) { "active" } else { "available" };
            (status, vcl, self.plant.running().then(|| self.plant.users(&vcl.name)))
        })
    }

    fn vcl_list_json(&self) -> Reply {
        let mut text = json::begin(2, &["vcl.list", "-j"], self.now_time());
        let listed = self.listed().map(|(status, vcl, users)| {
            (status, vcl.state.name(), temperature(vcl), users.unwrap_or(0), vcl.name.clone())
        });
        let lingering =
            self.lingering().into_iter().map(|(name, users)| ("discarded", "cold", "busy", users, name));
        for (index, (status, state, temperature, users, name)) in listed.chain(lingering).enumerate() {
            let _ = write!(
                text,
                "{}\n  {{\n    \"status\": \"{status}\",\n    \"state\": \"{state}\",\n    \
                 \"temperature\": \"{temperature}\",\n    \"busy\": {users},\n    \"name\": {}\n}}",
                if index == 0 { "" } else { "," },
                json::string(&name),
            );
        }
        text.push_str("\n]\n");
        Reply::ok(text)
    }

    pub(super) fn vcl_show(&self, arguments: &[String]) -> Reply {
        let (verbose, name) = match arguments {
            [] => (false, None),
            [flag] if flag == "-v" => (true, None),
            [name] => (false, Some(name)),
            [flag, name] if flag == "-v" => (true, Some(name)),
            _ => return Reply::wrong("Unknown options\n"),
        };
        let vcl = match name {
            Some(name) => self.vcls.find(name).ok_or_else(|| format!("No VCL named '{name}'")),
            None => self.vcls.active().ok_or_else(|| "No active VCL".to_owned()),
        };
        let sources = match vcl {
            Ok(vcl) => &vcl.compiled.sources,
            Err(why) => return Reply::wrong(why),
        };
        if verbose {
            return Reply::ok(show_all(sources));
        }
        Reply::ok(sources.first().map_or(String::new(), |source| show(&source.text)))
    }
}

fn temperature<Program>(vcl: &Loaded<Program>) -> &'static str {
    if vcl.warm { "warm" } else { "cold" }
}

/// Text as it is shown: VCL need not be UTF-8, replies are.
fn show(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// All files of a VCL, each after a line with its number, length and name.
pub(crate) fn show_all(sources: &[Source]) -> String {
    let mut text = String::new();
    for (index, source) in sources.iter().enumerate() {
        let _ = writeln!(
            text,
            "// VCL.SHOW {index} {} {}\n{}",
            source.text.len(),
            source.name,
            show(&source.text)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, manager, running};

    #[test]
    fn loading_and_using() {
        let mut manager = running();
        check(&mut manager, "vcl.list", 200, "active   auto    warm         0    boot\n");
        check(&mut manager, "vcl.inline boot ok", 106, "Already a VCL named boot");
        check(&mut manager, "vcl.inline 1x ok", 106, "Illegal character in VCL name ('1')");
        check(
            &mut manager,
            "vcl.inline x bad",
            106,
            concat!(
                "Message from VCC-compiler:\nbad at <vcl.inline>\nRunning VCC-compiler failed, exited with 2\n",
                "VCL compilation failed"
            ),
        );
        check(
            &mut manager,
            "vcl.load x /nonexistent",
            106,
            concat!(
                "Message from VCC-compiler:\nCannot read file '/nonexistent' (No such file or directory)\n",
                "Running VCC-compiler failed, exited with 2\nVCL compilation failed"
            ),
        );
        check(&mut manager, "vcl.load boot /nonexistent", 106, "Already a VCL named boot");
        check(
            &mut manager,
            "vcl.inline x init-fails",
            106,
            "VCL \"x\" Failed initialization\nMessage:\n\tno init\n",
        );
        check(&mut manager, "vcl.inline c ok cold", 200, "");
        check(&mut manager, "vcl.inline w ok lukewarm", 106, "State must be one of auto, cold or warm.");
        check(&mut manager, "vcl.use c", 300, "VCL 'c' is cold - set to auto or warm first");
        check(&mut manager, "vcl.use nope", 106, "No VCL named nope known\n");
        check(&mut manager, "vcl.state c auto", 200, "");
        check(
            &mut manager,
            "vcl.list",
            200,
            "active      auto    warm         0    boot\navailable   auto    cold         0    c\n",
        );
        check(&mut manager, "vcl.use c", 200, "");
        check(
            &mut manager,
            "vcl.list",
            200,
            "available   auto    warm         0    boot\nactive      auto    warm         0    c\n",
        );
        assert_eq!(manager.plant().log.borrow().last().unwrap(), "activate c");
    }

    #[test]
    fn discarding() {
        let mut manager = running();
        check(&mut manager, "vcl.discard boot", 300, "Cannot discard active VCL program boot\n");
        check(&mut manager, "vcl.discard zz*", 106, "No VCL name matches zz*\n");
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.inline b ok", 200, "");
        check(&mut manager, "vcl.discard a b*", 300, "Cannot discard active VCL program boot\n");
        check(&mut manager, "vcl.discard a a b", 200, "");
        check(&mut manager, "vcl.list", 200, "active   auto    warm         0    boot\n");
    }

    #[test]
    fn cooling_down() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.inline w ok warm", 200, "");
        check(&mut manager, "vcl.state boot cold", 300, "Cannot set the active VCL cold.");
        manager.cool_down(1599.0);
        assert!(!manager.plant().log.borrow().contains(&"warm a false".to_owned()));
        manager.cool_down(1600.0);
        assert_eq!(manager.plant().log.borrow().last().unwrap(), "warm a false");
        check(
            &mut manager,
            "vcl.list",
            200,
            "active      auto    warm         0    boot\navailable   auto    cold         0    a\navailable   warm    warm         0    w\n",
        );
    }

    #[test]
    fn showing() {
        let mut manager = running();
        check(&mut manager, "vcl.show", 200, "ok");
        check(&mut manager, "vcl.show -v boot", 200, "// VCL.SHOW 0 2 <vcl.inline>\nok\n");
        check(&mut manager, "vcl.show nope", 106, "No VCL named 'nope'");
        check(
            &mut manager,
            "vcl.list -j",
            200,
            concat!(
                "[ 2, [\"vcl.list\", \"-j\"], 1000.000,\n  {\n    \"status\": \"active\",\n    \"state\": \"auto\",\n",
                "    \"temperature\": \"warm\",\n    \"busy\": 0,\n    \"name\": \"boot\"\n}\n]\n"
            ),
        );
    }

    #[test]
    fn too_many() {
        let mut manager = manager();
        check(&mut manager, "param.set max_vcl 1", 200, "");
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(
            &mut manager,
            "vcl.inline b ok",
            200,
            "2 VCLs loaded\nRemember to vcl.discard the old/unused VCLs.\n",
        );
        check(&mut manager, "param.set max_vcl_handling 2", 200, "");
        check(
            &mut manager,
            "vcl.inline c ok",
            300,
            "Too many (2) VCLs already loaded\n(See max_vcl and max_vcl_handling parameters)",
        );
        check(
            &mut manager,
            "vcl.list",
            200,
            "available   auto    warm         -    a\navailable   auto    warm         -    b\n",
        );
    }
}
