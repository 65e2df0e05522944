//! What may be done where: every use of a variable and every `return` is checked against all the built-in subroutines
//! that can reach it through `call`, and calls that come back to themselves are refused.

use crate::check::Checker;
use crate::diagnostics::{Checked, Problem};
use crate::host::Sub;
use crate::source::Span;
use crate::variables::Subs;

/// How deep calls may nest.
const CALLS_MAX: usize = 100;

/// Something that only some subroutines may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) span: Span,
    pub(crate) allowed: Subs,
    pub(crate) wrong: Wrong,
}

/// What to say of it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Read,
    Set,
    /// Set, although it can only be read where `allowed`.
    ReadOnly,
    Unset,
    Action,
    Return,
}

/// For each subroutine what it does and whom it calls.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    routines: Vec<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    uses: Vec<Use>,
    calls: Vec<(usize, Span)>,
}

impl Flow {
    /// Makes room for the facts of a subroutine.
    pub(crate) fn room_for(&mut self, routine: usize) {
        if self.routines.len() <= routine {
            self.routines.resize_with(routine + 1, Facts::default);
        }
    }

    pub(crate) fn uses(&mut self, routine: usize, usage: Use) {
        self.routines[routine].uses.push(usage);
    }

    pub(crate) fn calls(&mut self, routine: usize, callee: usize, span: Span) {
        self.routines[routine].calls.push((callee, span));
    }

    pub(crate) fn check(&self, checker: &Checker) -> Checked<()> {
        let mut heights = vec![None; self.routines.len()];
        for routine in 0..self.routines.len() {
            self.height(checker, routine, &mut Vec::new(), &mut heights)?;
        }
        for returns in [true, false] {
            for (index, row) in checker.routines.rows.iter().enumerate() {
                if let Some(entry) = row.value.as_ref().and_then(|routine| routine.entry) {
                    let mut seen = vec![false; self.routines.len()];
                    self.permitted(checker, (entry, returns), index, &mut Vec::new(), &mut seen)?;
                }
            }
        }
        Ok(())
    }

    /// The subroutines that `routine` can reach, itself included.
    pub(crate) fn reach(&self, routine: usize) -> Vec<usize> {
        let mut seen = vec![false; self.routines.len()];
        let mut list = vec![routine];
        seen[routine] = true;
        let mut at = 0;
        while at < list.len() {
            for (callee, _) in &self.routines[list[at]].calls {
                if !std::mem::replace(&mut seen[*callee], true) {
                    list.push(*callee);
                }
            }
            at += 1;
        }
        list
    }

    /// How deep the calls below a subroutine nest. `path` holds the callers and where they call.
    fn height(
        &self,
        checker: &Checker,
        routine: usize,
        path: &mut Vec<(usize, Span)>,
        heights: &mut [Option<usize>],
    ) -> Checked<usize> {
        if let Some(height) = heights[routine] {
            return Ok(height);
        }
        if let Some(first) = path.iter().position(|(caller, _)| *caller == routine) {
            let row = &checker.routines.rows[routine];
            let mut problem = Problem::at(row.span, "Subroutine recurses on");
            for (caller, span) in path[first..].iter().rev() {
                let words = format!("...called from \"{}\"", checker.routines.rows[*caller].name);
                problem = problem.further(words).token(*span);
            }
            return Err(problem.into());
        }
        let mut height = 0;
        for (callee, span) in &self.routines[routine].calls {
            path.push((routine, *span));
            let too_deep = path.len() > CALLS_MAX;
            let below = if too_deep { CALLS_MAX } else { self.height(checker, *callee, path, heights)? };
            path.pop();
            height = height.max(below + 1);
            if height > CALLS_MAX {
                let words = format!("Calls nest deeper than {CALLS_MAX} levels");
                return Err(Problem::at(*span, words).into());
            }
        }
        heights[routine] = Some(height);
        Ok(height)
    }

    /// Whether a subroutine that `entry` reaches does what may be done there: its returns first, then the rest.
    fn permitted(
        &self,
        checker: &Checker,
        (entry, returns): (Sub, bool),
        routine: usize,
        path: &mut Vec<(usize, Span)>,
        seen: &mut [bool],
    ) -> Checked<()> {
        if std::mem::replace(&mut seen[routine], true) {
            return Ok(());
        }
        for usage in &self.routines[routine].uses {
            let turn = (usage.wrong == Wrong::Return) == returns;
            if turn && (usage.wrong == Wrong::ReadOnly || !usage.allowed.contains(entry)) {
                return Err(forbidden(checker, entry, routine, path, usage));
            }
        }
        for (callee, span) in &self.routines[routine].calls {
            path.push((routine, *span));
            self.permitted(checker, (entry, returns), *callee, path, seen)?;
            path.pop();
        }
        Ok(())
    }
}

fn forbidden(
    checker: &Checker,
    entry: Sub,
    routine: usize,
    path: &[(usize, Span)],
    usage: &Use,
) -> Box<Problem> {
    let row = &checker.routines.rows[routine];
    let from = if path.is_empty() { "in" } else { "from" };
    let place = format!("{from} subroutine 'vcl_{}'.", entry.name());
    let stated = |words: &str| Problem::new().stretch(usage.span).words(format!("{words} {place}"));
    let readable = usage.allowed.contains(entry);
    let problem = match usage.wrong {
        Wrong::Read => stated("Not available"),
        Wrong::ReadOnly if !readable => stated("Not available"),
        Wrong::ReadOnly => Problem::new().stretch(usage.span).words("Variable is read only."),
        Wrong::Set => stated("Cannot be set"),
        Wrong::Unset => stated("Cannot be unset"),
        Wrong::Action => stated("Not a valid action"),
        Wrong::Return => {
            Problem::at(usage.span, format!("Invalid return \"{}\"", checker.sources.quote(usage.span)))
        }
    };
    if path.is_empty() && usage.wrong != Wrong::Return {
        return problem.into();
    }
    let mut problem = problem.further(format!("...in subroutine \"{}\"", row.name)).token(row.span);
    for (caller, span) in path.iter().rev() {
        let words = format!("...called from \"{}\"", checker.routines.rows[*caller].name);
        problem = problem.further(words).token(*span);
    }
    problem = problem.further(format!("...which is the \"vcl_{}\" subroutine", entry.name()));
    if usage.wrong == Wrong::Return {
        let legal: String = ACTIONS
            .iter()
            .filter(|action| allowed(action).is_some_and(|subs| subs.contains(entry)))
            .map(|action| format!(" \"{action}\""))
            .collect();
        problem = problem.words(format!("Legal returns are:{legal}"));
    }
    problem.into()
}

/// The actions, in the order of the alphabet.
const ACTIONS: &[&str] = &[
    "abandon", "deliver", "error", "fail", "fetch", "hash", "lookup", "ok", "pass", "pipe", "purge",
    "restart", "retry", "synth", "vcl",
];

/// The subroutines that may return an action. Source: Varnish 7.1, `vcl-step(7)`.
pub(crate) fn allowed(action: &str) -> Option<Subs> {
    use Sub::*;
    Some(match action {
        "fail" => Subs::CLIENT.union(Subs::BACKEND).union(Subs::of(&[Init])),
        "synth" => Subs::of(&[Recv, Pipe, Pass, Purge, Miss, Hit, Deliver]),
        "restart" => Subs::of(&[Recv, Pass, Purge, Miss, Hit, Deliver, Synth]),
        "pass" => Subs::of(&[Recv, Miss, Hit, BackendResponse]),
        "pipe" => Subs::of(&[Recv, Pipe]),
        "hash" => Subs::of(&[Recv]),
        "purge" => Subs::of(&[Recv]),
        "vcl" => Subs::of(&[Recv]),
        "lookup" => Subs::of(&[Hash]),
        "fetch" => Subs::of(&[Pass, Miss, BackendFetch]),
        "deliver" => Subs::of(&[Hit, Deliver, Synth, BackendResponse, BackendError]),
        "abandon" => Subs::of(&[BackendFetch, BackendResponse, BackendError]),
        "retry" => Subs::of(&[BackendResponse, BackendError]),
        "error" => Subs::of(&[BackendFetch, BackendResponse]),
        "ok" => Subs::of(&[Init, Fini]),
        _ => return None,
    })
}
