//! Commands about backends.

use super::Management;
use super::table::Columns;
use crate::server::{AdminHealth, Backend, Server};
use admin::{Reply, json};
use copal_admin as admin;
use copal_observe::glob;
use copal_wire as wire;
use std::fmt::Write as _;

fn health_word(healthy: bool) -> &'static str {
    if healthy { "healthy" } else { "sick" }
}

/// The column Admin: the operator's word, else who decides.
fn admin_word(backend: &Backend) -> &'static str {
    match backend.admin {
        AdminHealth::Healthy => "healthy",
        AdminHealth::Sick => "sick",
        AdminHealth::Auto if backend.probe.is_some() => "probe",
        AdminHealth::Auto => "healthy",
    }
}

impl<P: Server> Management<P> {
    /// Backends that `pattern` names: a pattern for the name in the active VCL, or `vcl.name` with a pattern each.
    fn matching(&self, pattern: Option<&str>) -> Vec<Backend> {
        let active = self.vcls.active().map_or("", |vcl| vcl.name.as_str());
        let mut backends = self.server.backends();
        backends.retain(|backend| match pattern {
            None => backend.vcl == active,
            Some(pattern) => match pattern.split_once('.') {
                Some((vcl, name)) => {
                    glob::matches(vcl, &backend.vcl)
                        && (name.is_empty() || glob::matches(name, &backend.name))
                }
                None => backend.vcl == active && glob::matches(pattern, &backend.name),
            },
        });
        backends
    }

    pub(super) fn backend_list(&self, arguments: &[String], json: bool) -> Reply {
        let (mut json, mut probes, mut pattern) = (json, false, None);
        for argument in arguments {
            if let Some(flags) = argument.strip_prefix('-') {
                for flag in flags.chars() {
                    match flag {
                        'p' => probes = true,
                        'j' => json = true,
                        other => return Reply::wrong(format!("Invalid flag {other}")),
                    }
                }
                continue;
            }
            match argument.as_str() {
                _ if pattern.is_some() => return Reply::wrong("Too many arguments"),
                "" => {}
                name => pattern = Some(name),
            }
        }
        let backends = self.matching(pattern);
        if json {
            return self.backend_json(&backends, probes, pattern);
        }
        let mut columns = Columns::default();
        columns.row(&["Backend name", "Admin", "Probe", "Health", "Last change"]);
        for backend in &backends {
            let (good, total) = backend.probe.unwrap_or((0, 0));
            let date = wire::date::format(backend.changed);
            columns.row(&[
                &format!("{}.{}", backend.vcl, backend.name),
                admin_word(backend),
                &format!("{good}/{total}"),
                health_word(backend.healthy),
                &String::from_utf8_lossy(&date),
            ]);
            if probes {
                columns.lines(&backend.details);
            }
        }
        Reply::ok(columns.print())
    }

    fn backend_json(&self, backends: &[Backend], probes: bool, pattern: Option<&str>) -> Reply {
        let mut words = vec!["backend.list", "-j"];
        words.extend(probes.then_some("-p"));
        words.extend(pattern);
        let mut text = json::begin(3, &words, self.now_time());
        text.push_str("\n  {");
        for (index, backend) in backends.iter().enumerate() {
            let (good, total) = backend.probe.unwrap_or((0, 0));
            let details = match probes && !backend.details_json.is_empty() {
                true => format!(",\n      \"probe_details\": {}", backend.details_json),
                false => String::new(),
            };
            let _ = write!(
                text,
                "{}\n    {}: {{\n      \"type\": {},\n      \"admin_health\": \"{}\",\n      \"probe_message\": [{good}, \
                 {total}, \"{}\"]{details},\n      \"last_change\": {:.3}\n    }}",
                if index == 0 { "" } else { "," },
                json::string(&format!("{}.{}", backend.vcl, backend.name)),
                json::string(&backend.kind),
                admin_word(backend),
                health_word(backend.healthy),
                backend.changed,
            );
        }
        text.push_str("\n  }\n]\n");
        Reply::ok(text)
    }

    pub(super) fn backend_set_health(&mut self, pattern: &str, state: &str) -> Reply {
        let health = match state {
            "auto" => AdminHealth::Auto,
            "healthy" => AdminHealth::Healthy,
            "sick" => AdminHealth::Sick,
            _ => return Reply::wrong(format!("Invalid state {state}")),
        };
        let backends = self.matching(Some(pattern));
        if backends.is_empty() {
            return Reply::wrong("No Backends matches");
        }
        for backend in backends {
            self.server.set_health(&backend.vcl, &backend.name, health);
        }
        Reply::done()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, running};

    #[test]
    fn listing() {
        let mut manager = running();
        let head = "Backend name   Admin      Probe    Health     Last change\n";
        check(
            &mut manager,
            "backend.list",
            200,
            &format!(
                "{head}boot.a         probe      2/8      sick       Thu, 01 Jan 1970 00:16:40 GMT\n\
                 boot.b         healthy    0/0      healthy    Thu, 01 Jan 1970 00:16:40 GMT\n"
            ),
        );
        check(
            &mut manager,
            "backend.list -p a",
            200,
            "Backend name   Admin    Probe    Health    Last change\n\
             boot.a         probe    2/8      sick      Thu, 01 Jan 1970 00:16:40 GMT\n probed\n",
        );
        check(
            &mut manager,
            "backend.list zz",
            200,
            "Backend name   Admin    Probe    Health    Last change\n",
        );
        check(
            &mut manager,
            "backend.list -j b",
            200,
            concat!(
                "[ 3, [\"backend.list\", \"-j\", \"b\"], 1000.000,\n  {\n    \"boot.b\": {\n      \"type\": \"backend\",\n",
                "      \"admin_health\": \"healthy\",\n      \"probe_message\": [0, 0, \"healthy\"],\n",
                "      \"last_change\": 1000.000\n    }\n  }\n]\n"
            ),
        );
        check(&mut manager, "backend.list -p a b", 105, "Too many parameters\n");
        check(&mut manager, "backend.list a b", 106, "Too many arguments");
        check(&mut manager, "backend.list -x", 106, "Invalid flag x");
    }

    #[test]
    fn setting_health() {
        let mut manager = running();
        check(&mut manager, "backend.set_health b sick", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "health boot.b Sick");
        check(&mut manager, "backend.set_health *.a healthy", 200, "");
        assert_eq!(manager.server().log.borrow().last().unwrap(), "health boot.a Healthy");
        check(&mut manager, "backend.set_health nope sick", 106, "No Backends matches");
        check(&mut manager, "backend.set_health a foo", 106, "Invalid state foo");
    }
}
