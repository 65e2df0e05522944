//! The executable form: a flat list of small instructions over a stack of values, a stack of open texts, and a flag.
//!
//! Texts are built in one buffer. `Begin` opens one, the `Append` instructions write to the innermost, and whatever
//! uses a text closes it; so a header is assembled and set without an allocation. Tests leave their answer in the flag,
//! which the conditional jumps read. Nothing jumps backwards and no subroutine calls itself, so every run ends.

use crate::host::Side;
use crate::typed::{Arithmetic, Comparison, Plain};
use crate::variables::{StorageVar, Var};

/// An index into the program's texts.
pub(crate) type TextIndex = u32;

/// One instruction. "Pops" and "pushes" are about the stack of values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    // Values
    /// Pushes a constant.
    Const(u32),
    /// Pushes a string constant.
    Text(TextIndex),
    /// Pushes a variable.
    Var(Var),
    /// Pushes a backend of the instance.
    Backend(u32),
    /// Pushes an access list.
    Acl(u32),
    DefaultBackend,
    /// Pops a storage, pushes its property.
    Storage(StorageVar),
    Negate,
    Arithmetic(Arithmetic),
    /// Pops a backend, pushes what it resolves to.
    Resolve,
    /// Pops and forgets.
    Drop,

    // Texts
    Begin,
    AppendText(TextIndex),
    AppendVar(Var),
    AppendField(Side, TextIndex),
    /// Pops a value and appends it as VCL prints it.
    AppendValue,
    Lower,
    Upper,
    /// The innermost text is the replacement, the one around it the subject; leaves the result in the subject's place.
    Regsub {
        regex: u32,
        all: bool,
    },
    /// Makes the innermost text a part of the one around it.
    Join,
    /// Pops that many strings and pushes them as one value.
    Strands(u16),
    /// Closes the innermost text and pushes it as a string.
    End,

    // Tests
    Flag(bool),
    /// Pops a value and tests whether it is true.
    Truth,
    /// Closes the innermost text and tests whether any of it was set.
    TextSet,
    Field(Side, TextIndex),
    FieldIs(Side, TextIndex, TextIndex),
    VarIs(Var, TextIndex),
    FieldMatches(Side, TextIndex, u32),
    VarMatches(Var, u32),
    /// Closes the innermost text and matches it.
    TextMatches(u32),
    /// Pops an address.
    InAcl(u32),
    /// Pops the right value, then the left.
    Compare(Comparison),
    /// Closes two texts: the innermost is the right one.
    CompareTexts(Comparison),
    Not,
    /// Pushes the flag.
    PushFlag,

    // Flow
    Jump(u32),
    JumpIf(u32),
    JumpUnless(u32),
    Call(u32),
    Return,

    // Effects
    /// Notes the place, if none was noted in this run.
    Remember,
    /// Pops the value.
    SetVar(Var),
    /// Closes a text.
    SetText(Var),
    /// Closes a text.
    SetField(Side, TextIndex),
    SetFieldText(Side, TextIndex, TextIndex),
    UnsetVar(Var),
    UnsetField(Side, TextIndex),
    /// Closes a text.
    SetBody {
        append: bool,
    },
    /// Closes a text.
    HashData,
    /// Closes a text, of which more follows.
    HashPart,
    /// Closes a text.
    Ban,
    Rollback(Side),
    /// Pops the arguments, pushes the result.
    Vmod {
        function: u32,
        object: Option<u32>,
        arguments: u16,
    },
    /// Pops the arguments and makes the object.
    New {
        object: u32,
        arguments: u16,
    },

    // Ends
    Finish(Plain),
    /// Closes a text if there is one.
    FinishFail {
        reason: bool,
    },
    /// Closes a text if there is a reason, pops the status.
    FinishSynth {
        reason: bool,
    },
    FinishError,
    /// As `FinishSynth`.
    FinishErrorWith {
        reason: bool,
    },
    /// Pops the duration.
    FinishHitForPass,
    FinishVcl(TextIndex),
    /// Behind the last statement of a built-in subroutine: it should have returned.
    FellOff,
}

const _: () = assert!(size_of::<Op>() <= 16);
