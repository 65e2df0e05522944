//! The commands about VCLs and labels: loading, using, warming.
//!
//! ```text
//!              vcl.load, vcl.inline
//!                      |
//!   cold <-(cools down, vcl.state)-> warm --vcl.use--> active --another vcl.use--> warm
//!      \______________ vcl.discard ______/                  (never discarded, never cold)
//! ```
//! A VCL in state `auto` is warm when loaded, and cools down once it has not been needed (active, or behind a label) for
//! `vcl_cooldown` seconds.

mod discard;
mod label;
mod list;
mod show;
mod table;

use super::Management;
use crate::compile::{self, read_file};
use crate::server::{Server, Source};
use admin::Reply;
use base::Time;
use copal_admin as admin;
use copal_base as base;
pub(crate) use show::show_all;
pub(super) use table::Table;
use table::{Entry, Loaded, State, not_known};

/// Checks the name of a VCL or label to be.
fn check_name(name: &str) -> Result<(), Reply> {
    let wrong = name.char_indices().find(|&(index, c)| match index {
        0 => !c.is_ascii_alphabetic(),
        _ => !(c.is_ascii_alphanumeric() || c == '_' || c == '-'),
    });
    match wrong {
        Some((_, c)) if !c.is_ascii_graphic() => {
            Err(Reply::wrong(format!("Illegal character in VCL name (0x{:02x})", u32::from(c))))
        }
        Some((_, c)) => Err(Reply::wrong(format!("Illegal character in VCL name ('{c}')"))),
        None if name.is_empty() => Err(Reply::wrong("Empty VCL name")),
        None => Ok(()),
    }
}

fn failed_compilation(message: &str) -> Reply {
    Reply::wrong(format!("{}VCL compilation failed", compile::failure(message)))
}

fn is_cold(name: &str) -> Reply {
    Reply::cant(format!("VCL '{name}' is cold - set to auto or warm first"))
}

impl<P: Server> Management<P> {
    pub(super) fn vcl_load(&mut self, name: &str, file: &str, state: Option<&str>) -> Reply {
        let read = match file.contains('/') && !self.parameters.vcc_unsafe_path {
            true => Err(format!("VCL filename '{file}' is unsafe.")),
            false => read_file(file, &self.parameters.vcl_path),
        };
        match read {
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
        match self.vcls.entry(name) {
            Some(_) => Err(Reply::wrong(format!("Already a VCL named {name}"))),
            None => Ok(()),
        }
    }

    fn add_vcl(&mut self, name: &str, source: &Source, state: Option<&str>) -> Result<Reply, Reply> {
        let state = state.map_or(Ok(State::Auto), State::parse)?;
        self.check_new(name)?;
        let count = self.vcls.iter().count();
        let crowded = count as u64 >= self.parameters.max_vcl && self.parameters.max_vcl_handling > 0;
        if crowded && self.parameters.max_vcl_handling == 2 {
            return Err(Reply::cant(format!(
                "Too many ({count}) VCLs already loaded\n(See max_vcl and max_vcl_handling parameters)"
            )));
        }
        let compiled = self
            .server
            .compile(source, &self.vcls.labels(), &self.parameters)
            .map_err(|message| failed_compilation(&message))?;
        let mut said = match compiled.warnings.as_str() {
            "" => String::new(),
            warnings => format!("Message from VCC-compiler:\n{warnings}"),
        };
        let now = self.now_time();
        let warm = state != State::Cold;
        let vcl = Loaded { name: name.to_owned(), compiled, state, warm, last_used: now };
        let running = self.server.running();
        if running {
            self.server.load(&vcl.load()).map_err(|why| {
                let why = why.trim_end_matches('\n').replace('\n', "\n\t");
                Reply::wrong(format!("VCL \"{name}\" Failed initialization\nMessage:\n\t{why}\n"))
            })?;
        }
        self.vcls.push(Entry::Vcl(Box::new(vcl)));
        if !running {
            said.push_str("VCL compiled.\n");
        }
        if crowded {
            said = format!(
                "{} VCLs loaded\nRemember to vcl.discard the old/unused VCLs.\n\
                 (See max_vcl and max_vcl_handling parameters)",
                count + 1
            );
        }
        Ok(Reply::ok(said))
    }

    pub(super) fn vcl_use(&mut self, name: &str) -> Reply {
        let Some(vcl) = self.vcls.behind(name) else { return not_known(name) };
        if vcl.state == State::Cold {
            return is_cold(name);
        }
        let behind = vcl.name.clone();
        let before = self.vcls.active().map(|vcl| vcl.name.clone());
        self.warm_up(&behind);
        self.vcls.set_active(name);
        if let Some(before) = before {
            self.note_use(&before);
        }
        if self.server.running() {
            self.server.activate(&behind);
        }
        Reply::ok(format!("VCL '{name}' now active"))
    }

    /// Notes that a VCL was needed until now.
    fn note_use(&mut self, name: &str) {
        let now = self.now_time();
        if let Some(vcl) = self.vcls.vcl_mut(name) {
            vcl.last_used = now;
        }
    }

    /// Makes a VCL warm that is going to be needed.
    fn warm_up(&mut self, name: &str) {
        let running = self.server.running();
        let Some(vcl) = self.vcls.vcl_mut(name) else { return };
        if !std::mem::replace(&mut vcl.warm, true) && running {
            self.server.set_warm(name, true);
        }
    }

    pub(super) fn vcl_state(&mut self, name: &str, state: &str) -> Reply {
        self.change_state(name, state).map_or_else(|refusal| refusal, |()| Reply::done())
    }

    fn change_state(&mut self, name: &str, state: &str) -> Result<(), Reply> {
        let (active, labels) = (self.vcls.is_active(name), self.vcls.labels_of(name).len());
        match self.vcls.entry(name) {
            Some(Entry::Label(_)) => return Err(Reply::wrong("Labels are always warm")),
            Some(Entry::Vcl(_)) => {}
            None => return Err(not_known(name)),
        }
        let state = State::parse(state)?;
        if active && state == State::Cold {
            return Err(Reply::cant("Cannot set the active VCL cold."));
        }
        if labels > 0 && state == State::Cold {
            return Err(Reply::cant("A labeled VCL cannot be set cold"));
        }
        let (running, now) = (self.server.running(), self.now_time());
        let Some(vcl) = self.vcls.vcl_mut(name) else { return Ok(()) };
        vcl.state = state;
        vcl.last_used = now;
        let warm = match state {
            State::Auto => vcl.warm,
            State::Cold => false,
            State::Warm => true,
        };
        if std::mem::replace(&mut vcl.warm, warm) != warm && running {
            self.server.set_warm(name, warm);
        }
        Ok(())
    }

    /// Lets VCLs cool down that nobody has needed for a while.
    pub(super) fn cool_down(&mut self, now: Time) {
        let cooldown = self.parameters.vcl_cooldown;
        let running = self.server.running();
        let idle = |vcl: &&Loaded<P::Program>| {
            vcl.warm
                && vcl.state == State::Auto
                && now - vcl.last_used >= cooldown
                && !self.vcls.is_needed(&vcl.name)
        };
        let idle: Vec<String> = self.vcls.iter().filter(idle).map(|vcl| vcl.name.clone()).collect();
        for name in idle {
            if let Some(vcl) = self.vcls.vcl_mut(&name) {
                vcl.warm = false;
            }
            if running {
                self.server.set_warm(&name, false);
            }
        }
    }
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
        check(&mut manager, "vcl.inline \"a b\" ok", 106, "Illegal character in VCL name (0x20)");
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
        check(&mut manager, "vcl.use nope", 106, "No VCL named nope known");
        check(&mut manager, "vcl.state c auto", 200, "");
        check(
            &mut manager,
            "vcl.list",
            200,
            "active      auto    warm         0    boot\navailable   auto    cold         0    c\n",
        );
        check(&mut manager, "vcl.use c", 200, "VCL 'c' now active");
        check(
            &mut manager,
            "vcl.list",
            200,
            "available   auto    warm         0    boot\nactive      auto    warm         0    c\n",
        );
        assert_eq!(manager.server().log.borrow().last().unwrap(), "activate c");
    }

    #[test]
    fn cooling_down() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.inline w ok warm", 200, "");
        check(&mut manager, "vcl.inline l ok", 200, "");
        check(&mut manager, "vcl.label label l", 200, "");
        check(&mut manager, "vcl.state boot cold", 300, "Cannot set the active VCL cold.");
        check(&mut manager, "vcl.state l cold", 300, "A labeled VCL cannot be set cold");
        check(&mut manager, "vcl.state label cold", 106, "Labels are always warm");
        check(&mut manager, "vcl.state nope cold", 106, "No VCL named nope known");
        manager.cool_down(1599.0);
        assert!(!manager.server().log.borrow().contains(&"warm a false".to_owned()));
        manager.cool_down(1600.0);
        assert_eq!(manager.server().log.borrow().last().unwrap(), "warm a false");
        assert!(!manager.server().log.borrow().contains(&"warm l false".to_owned()));
    }

    #[test]
    fn too_many() {
        let mut manager = manager();
        check(&mut manager, "param.set max_vcl 1", 200, "");
        check(&mut manager, "vcl.inline a ok", 200, "VCL compiled.\n");
        check(
            &mut manager,
            "vcl.inline b ok",
            200,
            "2 VCLs loaded\nRemember to vcl.discard the old/unused VCLs.\n(See max_vcl and max_vcl_handling parameters)",
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
