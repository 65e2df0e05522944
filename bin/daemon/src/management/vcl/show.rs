//! `vcl.show`: the texts a VCL was made of.

use crate::management::Management;
use crate::server::{Server, Source};
use admin::Reply;
use copal_admin as admin;
use std::fmt::Write as _;

impl<P: Server> Management<P> {
    pub(in crate::management) fn vcl_show(&self, arguments: &[String]) -> Reply {
        let (verbose, name) = match arguments {
            [] => (false, None),
            [flag] if flag == "-v" => (true, None),
            [name] => (false, Some(name)),
            [flag, name] if flag == "-v" => (true, Some(name)),
            [_, more, ..] => return Reply::wrong(format!("Too many parameters: '{more}'")),
        };
        let vcl = match name {
            Some(name) => self.vcls.behind(name).ok_or_else(|| format!("No VCL named '{name}'")),
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
    use super::super::super::testing::{check, running};

    #[test]
    fn showing() {
        let mut manager = running();
        check(&mut manager, "vcl.show", 200, "ok");
        check(&mut manager, "vcl.show -v boot", 200, "// VCL.SHOW 0 2 <vcl.inline>\nok\n");
        check(&mut manager, "vcl.show nope", 106, "No VCL named 'nope'");
        check(&mut manager, "vcl.show -x boot", 106, "Too many parameters: 'boot'");
        check(&mut manager, "vcl.label l boot", 200, "");
        check(&mut manager, "vcl.show l", 200, "ok");
    }
}
