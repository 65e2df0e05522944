//! `vcl.discard`: what is active or leaned on stays.

use super::table::Entry;
use crate::management::Management;
use crate::server::Server;
use admin::Reply;
use copal_admin as admin;
use copal_observe::glob;

impl<P: Server> Management<P> {
    pub(in crate::management) fn vcl_discard(&mut self, patterns: &[String]) -> Reply {
        let doomed = match self.doomed(patterns).and_then(|doomed| self.check_doomed(doomed)) {
            Ok(doomed) => doomed,
            Err(refusal) => return refusal,
        };
        let labels =
            doomed.iter().filter(|name| matches!(self.vcls.entry(name), Some(Entry::Label(_)))).count();
        let freed: Vec<String> = self.vcls.labels().into_iter().map(|label| label.vcl).collect();
        let vcls: Vec<String> = doomed.iter().filter(|name| self.vcls.vcl(name).is_some()).cloned().collect();
        self.vcls.remove(&doomed);
        if labels > 0 {
            freed.iter().for_each(|name| self.note_use(name));
        }
        if self.server.running() {
            if labels > 0 {
                self.server.set_labels(&self.vcls.labels());
            }
            vcls.iter().for_each(|name| self.server.discard(name));
        }
        Reply::done()
    }

    /// The names that the patterns match, in the order of the table.
    fn doomed(&self, patterns: &[String]) -> Result<Vec<String>, Reply> {
        let names: Vec<&str> = self.vcls.entries().map(Entry::name).collect();
        for pattern in patterns {
            if !names.iter().any(|name| glob::matches(pattern, name)) {
                return Err(Reply::wrong(format!("No VCL name matches {pattern}\n")));
            }
        }
        let doomed =
            names.into_iter().filter(|name| patterns.iter().any(|pattern| glob::matches(pattern, name)));
        Ok(doomed.map(str::to_owned).collect())
    }

    /// Whether all of them may go.
    fn check_doomed(&self, doomed: Vec<String>) -> Result<Vec<String>, Reply> {
        for name in &doomed {
            if self.vcls.is_active(name) {
                return Err(Reply::cant(format!("Cannot discard active VCL program {name}\n")));
            }
            let (leaning, words) = match self.vcls.entry(name) {
                Some(Entry::Label(_)) => (
                    self.vcls.users_of(name),
                    format!("Cannot discard VCL label {name}, other VCLs depend on it:\n"),
                ),
                _ => (self.vcls.labels_of(name), format!("Cannot discard labeled VCL program {name}:\n")),
            };
            if leaning.iter().any(|other| !doomed.iter().any(|name| name == other)) {
                let names: String = leaning.iter().map(|name| format!("\t{name}\n")).collect();
                return Err(Reply::cant(words + &names));
            }
        }
        Ok(doomed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, running};

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
    fn what_is_leaned_on_stays() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.label l a", 200, "");
        check(&mut manager, "vcl.label l2 a", 200, "");
        check(&mut manager, "vcl.inline u uses:l", 200, "");
        check(&mut manager, "vcl.discard a", 300, "Cannot discard labeled VCL program a:\n\tl\n\tl2\n");
        check(&mut manager, "vcl.discard a l", 300, "Cannot discard labeled VCL program a:\n\tl\n\tl2\n");
        check(
            &mut manager,
            "vcl.discard l",
            300,
            "Cannot discard VCL label l, other VCLs depend on it:\n\tu\n",
        );
        check(&mut manager, "vcl.discard l2", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "labels l=a");
        check(&mut manager, "vcl.discard a u l", 200, "");
        let log = manager.server().log.borrow();
        assert_eq!(log[log.len() - 3..], ["labels ", "discard a", "discard u"]);
    }
}
