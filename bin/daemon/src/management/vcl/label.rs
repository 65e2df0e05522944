//! `vcl.label`, and what is asked about labels: `vcl.deps`, `vcl.symtab`.

use super::table::{Entry, State, Table, not_known};
use super::{check_name, is_cold};
use crate::management::Management;
use crate::management::table::Columns;
use crate::server::Server;
use admin::{Reply, json};
use copal_admin as admin;
use std::fmt::Write as _;

impl<P: Server> Management<P> {
    pub(in crate::management) fn vcl_label(&mut self, label: &str, name: &str) -> Reply {
        self.point_label(label, name).map_or_else(|refusal| refusal, |()| Reply::done())
    }

    fn point_label(&mut self, label: &str, name: &str) -> Result<(), Reply> {
        check_name(label)?;
        let vcl = match self.vcls.entry(name) {
            Some(Entry::Vcl(vcl)) => vcl,
            Some(Entry::Label(_)) => return Err(Reply::cant("VCL labels cannot point to labels")),
            None => return Err(not_known(name)),
        };
        if vcl.state == State::Cold {
            return Err(is_cold(name));
        }
        let before = match self.vcls.entry(label) {
            Some(Entry::Vcl(_)) => return Err(Reply::wrong(format!("{label} is not a label"))),
            Some(Entry::Label(existing)) if existing.vcl == name => return Ok(()),
            Some(Entry::Label(existing)) => Some(existing.vcl.clone()),
            None => None,
        };
        if let Some(user) = self.vcls.circle(label, name) {
            return Err(Reply::wrong(format!(
                "Vcl {user} uses Label {label}\nPointing label {label} at {name} would create a loop"
            )));
        }
        self.warm_up(name);
        self.vcls.point(label, name);
        if self.server.running() {
            self.server.set_labels(&self.vcls.labels());
            if self.vcls.is_active(label) {
                self.server.activate(name);
            }
        }
        if let Some(before) = before {
            self.note_use(&before);
        }
        Ok(())
    }

    pub(in crate::management) fn vcl_deps(&self, json: bool) -> Reply {
        if json {
            return self.vcl_deps_json();
        }
        let mut columns = Columns::default();
        for entry in self.vcls.entries() {
            let mut cells = vec![entry.name()];
            cells.extend(Table::needs(entry));
            columns.row(&cells);
        }
        Reply::ok(columns.print())
    }

    fn vcl_deps_json(&self) -> Reply {
        let mut text = json::begin(1, &["vcl.deps", "-j"], self.now_time());
        for (index, entry) in self.vcls.entries().enumerate() {
            let needs: Vec<String> = Table::needs(entry)
                .into_iter()
                .map(|name| format!("\n      {}", json::string(name)))
                .collect();
            let _ = write!(
                text,
                "{}\n  {{\n    \"name\": {},\n    \"deps\": [{}{}]\n  }}",
                if index == 0 { "" } else { "," },
                json::string(entry.name()),
                needs.join(","),
                if needs.is_empty() { "" } else { "\n    " },
            );
        }
        text.push_str("\n]\n");
        Reply::ok(text)
    }

    /// `debug.vmod`: the modules in use, each with the count of VCLs that import it. They are part of this program.
    pub(in crate::management) fn debug_vmod(&self) -> Reply {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for name in self.vcls.iter().flat_map(|vcl| &vcl.compiled.modules) {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        Reply::ok(
            counts.iter().map(|(name, count)| format!("{count:5} {name} (<builtin>)\n")).collect::<String>(),
        )
    }

    /// Who takes what from whom: `return (vcl(label))` as Varnish shows it, and what each VCL imports. Modules are part of
    /// this program, so that there is no file to name.
    pub(in crate::management) fn vcl_symtab(&self) -> Reply {
        let mut text = String::new();
        for entry in self.vcls.entries() {
            let (kind, needed_by) = match entry {
                Entry::Vcl(vcl) => ("Vcl", self.vcls.labels_of(&vcl.name)),
                Entry::Label(label) => ("Label", self.vcls.users_of(&label.name)),
            };
            let _ = writeln!(text, "{kind}: {}", entry.name());
            for (words, names) in [("imports from", Table::needs(entry)), ("exports to", needed_by)] {
                if !names.is_empty() {
                    let _ = writeln!(text, "  {words}:");
                }
                for name in names {
                    let _ = writeln!(text, "    {name}");
                    // A label's own import of its VCL is nothing that the compiler saw.
                    match entry {
                        Entry::Vcl(_) if words == "imports from" => imported(&mut text, "$VCL", name),
                        Entry::Label(label) if words == "exports to" => {
                            imported(&mut text, "$VCL", &label.name)
                        }
                        Entry::Vcl(_) | Entry::Label(_) => {}
                    }
                }
            }
            if let Entry::Vcl(vcl) = entry {
                text.push_str(
                    "  symtab:\n    {array}\n      {object}\n        [\"version\"]: {number} <0>\n",
                );
                vcl.compiled.modules.iter().for_each(|name| imported(&mut text, "$VMOD", name));
                vcl.compiled.labels.iter().for_each(|name| imported(&mut text, "$VCL", name));
            }
        }
        Reply::ok(text)
    }
}

/// What a VCL takes from outside, as `vcl.symtab` shows it.
fn imported(text: &mut String, kind: &str, name: &str) {
    text.push_str("      {object}\n");
    for (key, value) in [("dir", "import"), ("type", kind), ("name", name)] {
        let _ = writeln!(text, "        [\"{key}\"]: {{string}} <{value}>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, running};

    fn object(kind: &str, name: &str) -> String {
        let field = |key: &str, value: &str| format!("        [\"{key}\"]: {{string}} <{value}>\n");
        ["      {object}\n", &field("dir", "import"), &field("type", kind), &field("name", name)].concat()
    }

    #[test]
    fn the_symbol_table_names_modules() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a imports:std", 200, "");
        let version = "  symtab:\n    {array}\n      {object}\n        [\"version\"]: {number} <0>\n";
        let expected = format!("Vcl: boot\n{version}Vcl: a\n{version}{}", object("$VMOD", "std"));
        check(&mut manager, "vcl.symtab", 200, &expected);
        check(&mut manager, "debug.vmod", 200, "    1 std (<builtin>)\n");
    }

    #[test]
    fn labels_stand_for_vcls() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.inline c ok cold", 200, "");
        check(&mut manager, "vcl.label l.x a", 106, "Illegal character in VCL name ('.')");
        check(&mut manager, "vcl.label l nope", 106, "No VCL named nope known");
        check(&mut manager, "vcl.label l c", 300, "VCL 'c' is cold - set to auto or warm first");
        check(&mut manager, "vcl.label c a", 106, "c is not a label");
        check(&mut manager, "vcl.label l a", 200, "");
        check(&mut manager, "vcl.label l a", 200, "");
        check(&mut manager, "vcl.label m l", 300, "VCL labels cannot point to labels");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "labels l=a");
        check(&mut manager, "vcl.inline user uses:l", 200, "");
        check(&mut manager, "vcl.deps", 200, "boot\na\nc\nl      a\nuser   l\n");
        let version = "  symtab:\n    {array}\n      {object}\n        [\"version\"]: {number} <0>\n";
        let label = object("$VCL", "l");
        let expected = [
            &format!("Vcl: boot\n{version}Vcl: a\n  exports to:\n    l\n{version}Vcl: c\n{version}"),
            &format!("Label: l\n  imports from:\n    a\n  exports to:\n    user\n{label}"),
            &format!("Vcl: user\n  imports from:\n    l\n{label}{version}{label}"),
        ];
        check(&mut manager, "vcl.symtab", 200, &expected.map(String::as_str).concat());
        check(
            &mut manager,
            "vcl.list",
            200,
            concat!(
                "active      auto     warm         0    boot\n",
                "available   auto     warm         0    a       <-    (1 label)\n",
                "available   cold     cold         0    c\n",
                "available   label    warm         0    l       ->    a (1 return(vcl))\n",
                "available   auto     warm         0    user\n",
            ),
        );
        check(
            &mut manager,
            "vcl.label l user",
            106,
            "Vcl user uses Label l\nPointing label l at user would create a loop",
        );
        check(&mut manager, "vcl.label k user", 200, "");
        check(&mut manager, "vcl.inline far uses:k", 200, "");
        check(
            &mut manager,
            "vcl.label l far",
            106,
            "Vcl user uses Label l\nPointing label l at far would create a loop",
        );
    }

    #[test]
    fn a_label_may_be_active() {
        let mut manager = running();
        check(&mut manager, "vcl.inline a ok", 200, "");
        check(&mut manager, "vcl.inline b ok", 200, "");
        check(&mut manager, "vcl.label l a", 200, "");
        check(&mut manager, "vcl.use l", 200, "VCL 'l' now active");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "activate a");
        check(&mut manager, "vcl.label l b", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "activate b");
        check(&mut manager, "vcl.discard l", 300, "Cannot discard active VCL program l\n");
        check(&mut manager, "vcl.show", 200, "ok");
        check(&mut manager, "stop", 200, "");
        check(&mut manager, "start", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "start 3 b l=b");
    }

    #[test]
    fn dependencies_in_json() {
        let mut manager = running();
        check(&mut manager, "vcl.label l boot", 200, "");
        check(
            &mut manager,
            "vcl.deps -j",
            200,
            concat!(
                "[ 1, [\"vcl.deps\", \"-j\"], 1000.000,\n  {\n    \"name\": \"boot\",\n    \"deps\": []\n  },\n",
                "  {\n    \"name\": \"l\",\n    \"deps\": [\n      \"boot\"\n    ]\n  }\n]\n"
            ),
        );
    }
}
